"""`pcdc bench`: ours beside the strongest alternatives on the same model, prompt and machine."""
