"""Commands of a terminal: alpha-train and alpha-predict, and the options that the examples share with them."""
