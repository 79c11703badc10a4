// How far a parameter may go for its length (LARS, LAMB).
#ifndef WEFT_OPS_DEFS_OPTIMIZER_TRUST_RATIO_H_
#define WEFT_OPS_DEFS_OPTIMIZER_TRUST_RATIO_H_

#include "ops/defs/optimizer/optimizer.h"

namespace weft {

// Adds the ratio of the parameter's norm to that of `direction`, with these attributes of the op
// TrustRatio. Norms are of the whole parameter, wherever its shards are, since the partitioner adds
// up the sums of squares.
ValueId AddTrustRatio(UpdateSite& site, ValueId direction, Attributes attributes);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_OPTIMIZER_TRUST_RATIO_H_
