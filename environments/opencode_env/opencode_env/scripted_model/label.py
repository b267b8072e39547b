"""The words with which the scripted model names itself; every answer and every start-up line carries them."""

MODEL_ID = "scripted-model"
"""The one model id it lists and answers with, whatever model a request asked for."""

LABEL = "opencode-env scripted model, not a language model"
"""`owned_by` in the model list, `system_fingerprint` of every answer, first words of the start-up line."""
