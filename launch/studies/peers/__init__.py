"""drbench beside other libraries on the same work: who is faster, what DTensor does with each
layout, and DTensor with drbench under it."""
