"""CIFAR-10 and CIFAR-100, the sample of CIFAR-10 that comes with Alpha, and the choice between them."""
