"""What a schema is worth on labelled data: measured, fitted, judged and reported."""
