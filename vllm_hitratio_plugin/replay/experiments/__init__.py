"""The experiments that show how accurate the estimators are."""
