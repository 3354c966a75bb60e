"""From a target to a bundle or to native packages: Conan, layout, manifest, bill of materials."""
