"""Matrices inside larger ones, to check that nothing outside them is written."""

import numpy as np

BORDER = 77


def bordered(values, dtype, by_columns=False, above=1, left=3, right=2):
    """A view inside a larger matrix full of :data:`BORDER`, that matrix, and a mask of its elements
    outside the view. The larger matrix begins at a multiple of 64 bytes: ``above`` and ``left``
    decide the alignment of the view."""
    stored, dtype = np.array(values).T if by_columns else np.array(values), np.dtype(dtype)
    rows, columns = stored.shape
    shape = rows + above + 1, columns + left + right
    raw = np.zeros(shape[0] * shape[1] * dtype.itemsize + 64, np.uint8)
    whole = raw[-raw.ctypes.data % 64 :][: raw.size - 64].view(dtype).reshape(shape)
    whole[...] = BORDER
    inner = slice(above, above + rows), slice(left, left + columns)
    whole[inner] = stored
    outside = np.ones(shape, bool)
    outside[inner] = False
    return whole[inner].T if by_columns else whole[inner], whole, outside
