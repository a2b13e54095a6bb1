"""Parameters of whole models."""

from drbench.chains.model.transformers import model_sizes, preset


def of_layer(name):
    """Weights of a part."""
    matrices = preset(name).matrices.values()
    return sum(each.rows * each.cols * each.count for each in matrices if each.kind == "weight")


def count_parameters(model):
    """Of all layers and of the embedding, twice if the output has its own."""
    sizes = model_sizes(f"{model}:block")
    layers = sum(count * of_layer(f"{model}:{part}") for part, count in sizes.layers.items())
    return layers + sizes.width * sizes.vocab * (1 if sizes.tied else 2)
