// DepthToSpace and SpaceToDepth: one strided copy.
#include <string>
#include <vector>

#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBlocks(const PrepareContext& context,
                                                      bool to_space) {
  const Shape& x = context.InputShape(0);
  const Shape& image = to_space ? context.OutputShape(0) : x;
  const Shape& deep = to_space ? x : context.OutputShape(0);
  const int64_t block = context.attributes().Int("blocksize", 1);
  const int64_t channels = image.dim(1);
  const int64_t height = deep.dim(2);
  const int64_t width = deep.dim(3);
  const int64_t plane = height * width;
  // DCR: channel = (row in block, column in block, channel of the image).
  const bool depth_first = context.attributes().String("mode", "DCR") == "DCR";
  const int64_t deep_channel = plane * (depth_first ? 1 : block * block);
  const int64_t deep_column = plane * (depth_first ? channels : 1);
  struct Axis {
    int64_t size;
    int64_t in_image;
    int64_t in_deep;
  };
  const int64_t row = width * block;  // of the image
  const Axis of_n = {x.dim(0), channels * plane * block * block, channels * plane * block * block};
  const Axis of_c = {channels, plane * block * block, deep_channel};
  const Axis of_h = {height, row * block, width};
  const Axis of_row = {block, row, deep_column * block};
  const Axis of_w = {width, block, 1};
  const Axis of_column = {block, 1, deep_column};
  std::vector<Axis> order;
  if (to_space) {
    order = {of_n, of_c, of_h, of_row, of_w, of_column};
  } else if (depth_first) {
    order = {of_n, of_row, of_column, of_c, of_h, of_w};
  } else {
    order = {of_n, of_c, of_row, of_column, of_h, of_w};
  }
  std::vector<CopyAxis> axes;
  for (const Axis& axis : order) {
    axes.push_back(to_space ? CopyAxis{axis.size, axis.in_deep, axis.in_image}
                            : CopyAxis{axis.size, axis.in_image, axis.in_deep});
  }
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const StridedCopy copy(std::move(axes), bytes);
  const int threads = context.threads();
  return MakeKernel([copy, threads](const KernelContext& run) {
    copy.Run(run.inputs[0], run.outputs[0], threads);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDepthToSpace(const PrepareContext& context) {
  return PrepareBlocks(context, true);
}
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSpaceToDepth(const PrepareContext& context) {
  return PrepareBlocks(context, false);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "DepthToSpace", DeviceKind::kCpu, PrepareDepthToSpace);
WEFT_REGISTER_KERNEL("", "SpaceToDepth", DeviceKind::kCpu, PrepareSpaceToDepth);

}  // namespace weft::cpu
