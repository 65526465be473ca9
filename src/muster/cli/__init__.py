"""The command line: one thin file per verb, each a shell over one public function."""
