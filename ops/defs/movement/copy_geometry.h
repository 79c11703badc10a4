// Which elements Transpose, Expand, Tile, DepthToSpace, SpaceToDepth, Slice, Concat and Split copy,
// and where to; for the kernels of all devices. Shapes are concrete and fit the node.
#ifndef WEFT_OPS_DEFS_MOVEMENT_COPY_GEOMETRY_H_
#define WEFT_OPS_DEFS_MOVEMENT_COPY_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_schema.h"
#include "ops/copy_axis.h"

namespace weft {

// From input 0 to output 0 of the node.
std::vector<CopyAxis> TransposeAxes(const NodeView& node);
std::vector<CopyAxis> ExpandAxes(const NodeView& node);
// Each axis of the output is (repeats, size).
std::vector<CopyAxis> TileAxes(const NodeView& node);
std::vector<CopyAxis> DepthToSpaceAxes(const NodeView& node);
std::vector<CopyAxis> SpaceToDepthAxes(const NodeView& node);

// From `whole` to `sliced`. The lists are inputs first_list .. first_list + 3. InvalidArgument when
// they are wrong, or do not give the shape `sliced`.
absl::StatusOr<CopyGeometry> SliceGeometry(const NodeView& node, int first_list, const Shape& whole,
                                           const Shape& sliced);

// One copy for each of the inputs of a Concat. InvalidArgument for an axis that is not there.
absl::StatusOr<std::vector<CopyGeometry>> ConcatGeometry(const NodeView& node);
// One for each of the outputs of a Split, also for those that nobody wants. Unimplemented when
// the sizes of the parts are not known.
absl::StatusOr<std::vector<CopyGeometry>> SplitGeometry(const NodeView& node);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MOVEMENT_COPY_GEOMETRY_H_
