#include "ops/defs/movement/copy_geometry.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/slice_range.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A tensor that is cut along one axis: `outer` rows of `whole` times `inner` elements.
struct CutTensor {
  int axis = 0;
  int64_t outer = 1;
  int64_t whole = 0;
  int64_t inner = 1;
};

absl::StatusOr<CutTensor> CutTensorOf(const NodeView& node, const Shape& whole) {
  CutTensor cut;
  WEFT_ASSIGN_OR_RETURN(cut.axis, NormalizeAxis(node.attributes().Int("axis", 0), whole.rank()));
  cut.outer = whole.ProductOf(0, cut.axis);
  cut.whole = whole.dim(cut.axis);
  cut.inner = whole.ProductOf(cut.axis + 1, whole.rank());
  return cut;
}

std::string NameOf(const NodeView& node) {
  return absl::StrCat(node.node().op, " '", node.node().name, "'");
}

// The size of each part, in order.
absl::StatusOr<std::vector<int64_t>> PartSizes(const NodeView& node, int64_t whole) {
  if (node.HasInput(1)) {
    const Tensor* const sizes = node.InputValue(1);
    if (sizes == nullptr) {
      return absl::UnimplementedError(absl::StrCat(NameOf(node), ": the sizes depend on data"));
    }
    return ToInt64s(*sizes);
  }
  const int64_t parts = node.num_outputs();
  const int64_t size = (whole + parts - 1) / parts;
  std::vector<int64_t> equal(static_cast<size_t>(parts), size);
  equal.back() = whole - size * (parts - 1);
  return equal;
}

// From `deep` to `image`, or back: from the input to the output.
std::vector<CopyAxis> DepthSpaceAxes(const NodeView& node, bool to_space) {
  const Shape& x = node.InputShape(0);
  const Shape& image = to_space ? node.OutputShape(0) : x;
  const Shape& deep = to_space ? x : node.OutputShape(0);
  const int64_t block = node.attributes().Int("blocksize", 1);
  const int64_t channels = image.dim(1);
  const int64_t height = deep.dim(2);
  const int64_t width = deep.dim(3);
  const int64_t plane = height * width;
  // DCR: channel = (row in block, column in block, channel of the image); CRD: channel first.
  const bool depth_first = node.attributes().String("mode", "DCR") == "DCR";
  const int64_t deep_channel = plane * (depth_first ? 1 : block * block);
  const int64_t deep_column = plane * (depth_first ? channels : 1);
  const int64_t row = width * block;  // of the image
  const int64_t sample = channels * plane * block * block;
  const CopyAxis of_n = {x.dim(0), sample, sample};
  const CopyAxis of_c = {channels, deep_channel, plane * block * block};
  const CopyAxis of_h = {height, width, row * block};
  const CopyAxis of_row = {block, deep_column * block, row};
  const CopyAxis of_w = {width, 1, block};
  const CopyAxis of_column = {block, deep_column, 1};
  if (to_space) return {of_n, of_c, of_h, of_row, of_w, of_column};
  std::vector<CopyAxis> axes = {of_n, of_c, of_row, of_column, of_h, of_w};
  if (depth_first) axes = {of_n, of_row, of_column, of_c, of_h, of_w};
  for (CopyAxis& axis : axes) std::swap(axis.from_stride, axis.to_stride);
  return axes;
}

}  // namespace

std::vector<CopyAxis> TransposeAxes(const NodeView& node) {
  const Shape& output = node.OutputShape(0);
  const auto from_strides = node.InputShape(0).Strides();
  const auto to_strides = output.Strides();
  const std::vector<int64_t> perm = node.attributes().Ints("perm");
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t from = perm.empty() ? output.rank() - 1 - axis : perm[static_cast<size_t>(axis)];
    axes.push_back({output.dim(axis), from_strides[from], to_strides[axis]});
  }
  return axes;
}

std::vector<CopyAxis> ExpandAxes(const NodeView& node) {
  const Shape& input = node.InputShape(0);
  const Shape& output = node.OutputShape(0);
  const auto from_strides = input.Strides();
  const auto to_strides = output.Strides();
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int from = axis - (output.rank() - input.rank());
    const bool repeated = from < 0 || input.dim(from) == 1;
    axes.push_back({output.dim(axis), repeated ? 0 : from_strides[from], to_strides[axis]});
  }
  return axes;
}

std::vector<CopyAxis> TileAxes(const NodeView& node) {
  const Shape& input = node.InputShape(0);
  const Shape& output = node.OutputShape(0);
  const auto from_strides = input.Strides();
  const auto to_strides = output.Strides();
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t size = input.dim(axis);
    axes.push_back({size == 0 ? 0 : output.dim(axis) / size, 0, size * to_strides[axis]});
    axes.push_back({size, from_strides[axis], to_strides[axis]});
  }
  return axes;
}

std::vector<CopyAxis> DepthToSpaceAxes(const NodeView& node) {
  return DepthSpaceAxes(node, /*to_space=*/true);
}

std::vector<CopyAxis> SpaceToDepthAxes(const NodeView& node) {
  return DepthSpaceAxes(node, /*to_space=*/false);
}

absl::StatusOr<CopyGeometry> SliceGeometry(const NodeView& node, int first_list, const Shape& whole,
                                           const Shape& sliced) {
  WEFT_ASSIGN_OR_RETURN(const SliceLists lists, SliceListsOf(node, first_list, whole.rank()));
  const std::vector<SliceRange> ranges = ResolveSlice(lists, whole);
  const auto whole_strides = whole.Strides();
  const auto sliced_strides = sliced.Strides();
  CopyGeometry copy;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const SliceRange& range = ranges[static_cast<size_t>(axis)];
    if (range.count != sliced.dim(axis)) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(node), ": the slice does not have the shape ", sliced.ToString()));
    }
    // A step that is never taken must not overflow.
    const int64_t step = range.count > 1 ? range.step : 0;
    copy.axes.push_back({range.count, whole_strides[axis] * step, sliced_strides[axis]});
    copy.from_offset += range.first * whole_strides[axis];
  }
  return copy;
}

absl::StatusOr<std::vector<CopyGeometry>> ConcatGeometry(const NodeView& node) {
  WEFT_ASSIGN_OR_RETURN(const CutTensor cut, CutTensorOf(node, node.OutputShape(0)));
  std::vector<CopyGeometry> copies;
  int64_t first = 0;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const int64_t part = node.InputShape(i).dim(cut.axis);
    CopyGeometry& copy = copies.emplace_back();
    copy.axes = {{cut.outer, part * cut.inner, cut.whole * cut.inner}, {part * cut.inner, 1, 1}};
    copy.to_offset = first * cut.inner;
    first += part;
  }
  return copies;
}

absl::StatusOr<std::vector<CopyGeometry>> SplitGeometry(const NodeView& node) {
  WEFT_ASSIGN_OR_RETURN(const CutTensor cut, CutTensorOf(node, node.InputShape(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, PartSizes(node, cut.whole));
  std::vector<CopyGeometry> copies;
  int64_t first = 0;
  for (int i = 0; i < node.num_outputs(); ++i) {
    const int64_t part = parts[static_cast<size_t>(i)];
    CopyGeometry& copy = copies.emplace_back();
    copy.axes = {{cut.outer, cut.whole * cut.inner, part * cut.inner}, {part * cut.inner, 1, 1}};
    copy.from_offset = first * cut.inner;
    first += part;
  }
  return copies;
}

}  // namespace weft
