// The image that MaxUnpool's indices count in.
#ifndef WEFT_OPS_DEFS_POOL_UNPOOL_SHAPE_H_
#define WEFT_OPS_DEFS_POOL_UNPOOL_SHAPE_H_

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "tensor/shape.h"

namespace weft {

// The smallest image whose windows (attributes kernel_shape, pads, strides) give a pool of shape
// `pooled`. InvalidArgument naming the attribute that does not fit.
absl::StatusOr<Shape> UnpooledShape(const Attributes& attributes, const Shape& pooled);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_POOL_UNPOOL_SHAPE_H_
