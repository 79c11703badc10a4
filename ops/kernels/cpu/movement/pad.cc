// Pad and CenterCropPad, any dtype but strings.
#include <optional>
#include <string>
#include <vector>

#include "ops/defs/movement/pad_widths.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/kernels/cpu/blocks/table_gather.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> MakePad(const PrepareContext& context,
                                                const std::vector<PadWidth>& widths, PadMode mode,
                                                int fill_input) {
  const Shape& x = context.InputShape(0);
  std::vector<std::vector<int64_t>> tables;
  for (int i = 0; i < x.rank(); ++i) {
    auto table = PadTable(x.dim(i), widths[i], mode);
    if (!table.ok()) return context.InvalidArgument(std::string(table.status().message()));
    tables.push_back(*std::move(table));
  }
  return MakeTableGather(context, std::move(tables), fill_input);
}

absl::StatusOr<std::unique_ptr<Kernel>> PreparePad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const PadMode mode,
                        ParsePadMode(context.attributes().String("mode", "constant")));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, RequiredInts(context, 1));
  std::optional<std::vector<int64_t>> axes;
  if (context.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(axes, RequiredInts(context, 3));
  }
  if (context.HasInput(2) && context.InputShape(2).num_elements() != 1) {
    return context.InvalidArgument("input 'constant_value' must hold one value");
  }
  const auto widths = ReadPadWidths(context.InputShape(0).rank(), pads, axes);
  if (!widths.ok()) return context.InvalidArgument(std::string(widths.status().message()));
  return MakePad(context, *widths, mode, 2);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCenterCropPad(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  std::vector<PadWidth> widths;
  for (int i = 0; i < x.rank(); ++i) {
    widths.push_back(CenteredWidth(x.dim(i), context.OutputShape(0).dim(i)));
  }
  return MakePad(context, widths, PadMode::kConstant, -1);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "Pad", DeviceKind::kCpu, PreparePad);
WEFT_REGISTER_KERNEL("", "CenterCropPad", DeviceKind::kCpu, PrepareCenterCropPad);

}  // namespace weft::cpu
