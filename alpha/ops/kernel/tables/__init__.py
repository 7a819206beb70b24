"""Tables for kernels: of numbers that follow from sizes, and of the chunks of many tensors, and the updates by them."""
