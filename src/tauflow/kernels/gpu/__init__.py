"""What Triton kernels are made of."""
