"""Amplification by sampling; one file per theorem or family of theorems.

| scheme | adjacency | what is sampled | file |
|---|---|---|---|
| Poisson | add-remove | Gaussian noise, exact | ``poisson_gaussian`` |
| Poisson; without replacement | its own | Laplace noise | ``sampled_laplace`` |
| Poisson | add-remove | any curve | ``poisson`` |
| Poisson | add-remove | Gaussian noise, closed form | ``moments`` |
| without replacement | replace-one | Gaussian noise; any curve | ``without_replacement`` |
| either, with its adjacency | | (ε, δ) | ``approximate`` |
| a random choice among mechanisms | either | any curves | ``mixture`` |

``pairing`` refuses a scheme with the other adjacency, ``whole_orders`` holds what bounds that are proven
at whole orders share.
"""
