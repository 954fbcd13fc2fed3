"""A Qwen3 small enough for two CPU cores, without weights: a config, and a tokenizer whose symbols are the 256 bytes.

Served with ``--load-format dummy`` its answers are noise, but block pool, prefix cache, scheduler and metrics are
vLLM's own, and these are all that a hit ratio depends on.
"""

import json
from pathlib import Path
from typing import Any

#: Token ids of the embedding table: 256 bytes, the special tokens, and unused ones up to a multiple of 64.
VOCABULARY = 320

#: Ids 256, 257 and 258.
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(folder: Path, *, max_position_embeddings: int = 32768) -> Path:
    """Write ``config.json`` and the tokenizer's files into `folder` (made if absent) and return it.

    Raises ``ImportError`` where ``transformers`` or ``tokenizers`` (which vLLM brings) are not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": max_position_embeddings,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 256,
        "eos_token_id": 258,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    make: Any = PreTrainedTokenizerFast  # its signature carries no types
    end, _, turn_end = SPECIAL_TOKENS
    fast = make(tokenizer_object=tokenizer, bos_token=end, eos_token=turn_end, pad_token=end)
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(str(folder))
