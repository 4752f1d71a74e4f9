r"""**Approximate**: the inner gradients are taken as constants (first-order MAML, Finn et al. 2017, section 5.2).

$d\lambda^{(K)}/d\theta \approx I$. On a quadratic of curvature a the true factor is $(1-\alpha a)^K$, so the
relative error is $1 - (1-\alpha a)^K$: small only if steps are few and short.
"""

from metaprior.metagrad.products import reverse_over_reverse
from metaprior.metagrad.sweep import Sweep

first_order = Sweep("first_order", exact=False, product=reverse_over_reverse, through=0)
