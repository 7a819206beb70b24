"""Parts of tensors: boxes of elements, and views and copies that know of which tensor they are a part."""
