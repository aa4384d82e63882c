//! Building blocks and the model zoo, with PyTorch and Hugging Face parameter names.
