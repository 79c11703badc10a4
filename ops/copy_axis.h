// A regular copy of elements, as axes with strides; for the kernels of all devices.
#ifndef WEFT_OPS_COPY_AXIS_H_
#define WEFT_OPS_COPY_AXIS_H_

#include <cstdint>
#include <vector>

namespace weft {

// One axis of the index space of a copy. Strides count elements, from one index to the next. A
// stride of the source may be 0 (repeat) or negative; the places of the target must not overlap.
struct CopyAxis {
  int64_t size = 1;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

// Axes from major to minor in the order of the target; offsets of the first element, in elements.
struct CopyGeometry {
  std::vector<CopyAxis> axes;
  int64_t from_offset = 0;
  int64_t to_offset = 0;
};

}  // namespace weft

#endif  // WEFT_OPS_COPY_AXIS_H_
