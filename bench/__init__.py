"""Speed and memory of tilth beside its peers, measured in one sitting: see README.md."""
