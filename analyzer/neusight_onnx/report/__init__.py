"""What was found, as a value, and the functions that turn it into text."""
