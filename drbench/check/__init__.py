"""The proof that the programs of all ranks are right, for authors of algorithms: from their steps
alone, in every order in which these may complete. It uses neither scheduler nor executor."""
