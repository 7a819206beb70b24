"""`x[index]`, and elements that an index tensor names: gather, scatter, index_select."""
