"""One pass a module, or a subpackage where it takes several; `pipeline` has their order."""
