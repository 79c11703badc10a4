// MatMulInteger and QLinearMatMul.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_lines.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

bool IsWholeByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUint8; }

bool IsByte(DType dtype) {
  return IsWholeByte(dtype) || dtype == DType::kFloat8E4M3Fn || dtype == DType::kFloat8E4M3Fnuz ||
         dtype == DType::kFloat8E5M2 || dtype == DType::kFloat8E5M2Fnuz;
}

absl::Status CheckBytes(const PrepareContext& context, const std::vector<DType>& dtypes) {
  for (const DType dtype : dtypes) {
    if (IsByte(dtype)) continue;
    return context.Unimplemented(
        absl::StrCat("no product of ", std::string(DTypeName(dtype)), " on CUDA devices"));
  }
  return absl::OkStatus();
}

// Batch axis `axis` of `rank` axes as an operand has it: 1 where it has none.
int64_t OperandDim(const Shape& operand, int rank, int axis) {
  const int own = axis - (rank - (operand.rank() - 2));
  return own < 0 ? 1 : operand.dim(own);
}

void AddAxis(AxisIndex& index, int axis, int64_t size, int64_t stride) {
  index.axes = axis + 1;
  index.sizes[axis] = size;
  index.strides[axis] = stride;
}

// Where the matrices of both operands begin, minor axes first. Neighbours that are one axis in both
// are merged.
absl::Status SetMatrices(const PrepareContext& context, const Shape& a, const Shape& b,
                         ByteProduct& product) {
  const int rank = std::max(a.rank(), b.rank()) - 2;
  int64_t a_step = product.m * product.k;
  int64_t b_step = product.k * product.n;
  int axes = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const int64_t a_size = OperandDim(a, rank, d);
    const int64_t b_size = OperandDim(b, rank, d);
    if (a_size != b_size && a_size != 1 && b_size != 1) {
      return context.InvalidArgument("the batch axes of the operands do not broadcast");
    }
    const int64_t size = a_size == 1 ? b_size : a_size;
    const int64_t a_stride = a_size == 1 ? 0 : a_step;
    const int64_t b_stride = b_size == 1 ? 0 : b_step;
    a_step *= a_size;
    b_step *= b_size;
    product.matrices *= size;
    if (size == 1) continue;
    AxisIndex& of_a = product.a_matrix;
    AxisIndex& of_b = product.b_matrix;
    const int last = axes - 1;
    if (axes > 0 && a_stride == of_a.strides[last] * of_a.sizes[last] &&
        b_stride == of_b.strides[last] * of_b.sizes[last]) {
      of_a.sizes[last] *= size;
      of_b.sizes[last] *= size;
      continue;
    }
    if (axes == kMaxIndexAxes) {
      return context.Unimplemented(
          absl::StrCat("more than ", kMaxIndexAxes, " batch axes that do not merge"));
    }
    AddAxis(of_a, axes, size, a_stride);
    AddAxis(of_b, axes, size, b_stride);
    ++axes;
  }
  for (AxisIndex* const index : {&product.a_matrix, &product.b_matrix}) {
    index->wide = product.matrices >= (int64_t{1} << 31) ? 1 : 0;
    for (int d = 0; d < axes && index->wide == 0; ++d) {
      index->divisors[d] =
          FastDivisor<int32_t>(static_cast<int32_t>(std::max<int64_t>(index->sizes[d], 1)));
    }
  }
  return absl::OkStatus();
}

// Without the addresses of a run. Inputs: A, B, and their zero points.
absl::StatusOr<ByteProduct> ProductOf(const PrepareContext& context, int b_input, int a_zero,
                                      int b_zero) {
  Shape a = context.InputShape(0);
  Shape b = context.InputShape(b_input);
  if (a.rank() == 1) a = Shape{1, a.dim(0)};
  if (b.rank() == 1) b = Shape{b.dim(0), 1};
  if (a.rank() < 2 || b.rank() < 2 || a.dim(a.rank() - 1) != b.dim(b.rank() - 2)) {
    return context.InvalidArgument("the operands do not share the summed axis");
  }
  ByteProduct product;
  product.a_format = MakeByteFormat(context.InputDType(0));
  product.b_format = MakeByteFormat(context.InputDType(b_input));
  product.m = a.dim(a.rank() - 2);
  product.k = a.dim(a.rank() - 1);
  product.n = b.dim(b.rank() - 1);
  WEFT_RETURN_IF_ERROR(SetMatrices(context, a, b, product));
  WEFT_ASSIGN_OR_RETURN(product.a_zeros, ByteLinesOf(context, a_zero, product.m, product.matrices));
  WEFT_ASSIGN_OR_RETURN(product.b_zeros, ByteLinesOf(context, b_zero, product.n, product.matrices));
  return product;
}

// ---- MatMulInteger.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMulInteger(const PrepareContext& context) {
  for (const int input : {0, 1}) {
    if (!IsWholeByte(context.InputDType(input))) {
      return context.Unimplemented(absl::StrCat(
          "no product of ", std::string(DTypeName(context.InputDType(input))), " on CUDA devices"));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const ByteProduct product, ProductOf(context, 1, 2, 3));
  const bool has_a_zeros = context.HasInput(2);
  const bool has_b_zeros = context.HasInput(3);
  return MakeKernel([=](const KernelContext& run) {
    ByteProduct now = product;
    now.a = run.inputs[0];
    now.b = run.inputs[1];
    now.a_zeros.data = OptionalInput(run, has_a_zeros, 2);
    now.b_zeros.data = OptionalInput(run, has_b_zeros, 3);
    return LaunchStatus(LaunchByteProduct(QueueOf(run), now, {.y = run.outputs[0]}),
                        "MatMulInteger");
  });
}
WEFT_REGISTER_KERNEL("", "MatMulInteger", DeviceKind::kCuda, PrepareMatMulInteger);

// ---- QLinearMatMul.

absl::StatusOr<Requantization> RequantizationOf(const PrepareContext& context,
                                                const ByteProduct& product) {
  Requantization codes;
  codes.scale_dtype = context.InputDType(1);
  WEFT_ASSIGN_OR_RETURN(codes.a_place, LinePlaceOf(context, 1, product.m, product.matrices));
  WEFT_ASSIGN_OR_RETURN(codes.b_place, LinePlaceOf(context, 4, product.n, product.matrices));
  WEFT_ASSIGN_OR_RETURN(codes.y_place, LinePlaceOf(context, 6, product.m, product.matrices));
  WEFT_ASSIGN_OR_RETURN(codes.zeros, ByteLinesOf(context, 7, product.m, product.matrices));
  codes.writer = MakeCodeEncoder(context.OutputDType(0), /*saturate=*/true);
  return codes;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareQLinearMatMul(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(
      CheckBytes(context, {context.InputDType(0), context.InputDType(2), context.InputDType(3),
                           context.InputDType(5), context.InputDType(7), context.OutputDType(0)}));
  if (context.InputDType(4) != context.InputDType(1) ||
      context.InputDType(6) != context.InputDType(1)) {
    return context.Unimplemented("the scales have several types");
  }
  WEFT_ASSIGN_OR_RETURN(const ByteProduct product, ProductOf(context, 3, 2, 5));
  WEFT_ASSIGN_OR_RETURN(const Requantization codes, RequantizationOf(context, product));
  const bool is_float = !IsWholeByte(context.InputDType(0)) || !IsWholeByte(context.InputDType(3));
  return MakeKernel([=](const KernelContext& run) {
    ByteProduct now = product;
    now.a = run.inputs[0];
    now.a_zeros.data = run.inputs[2];
    now.b = run.inputs[3];
    now.b_zeros.data = run.inputs[5];
    ByteOutput output = {.y = run.outputs[0], .is_codes = true, .codes = codes};
    output.codes.a_scales = run.inputs[1];
    output.codes.b_scales = run.inputs[4];
    output.codes.y_scales = run.inputs[6];
    output.codes.zeros.data = run.inputs[7];
    const LaunchQueue queue = QueueOf(run);
    return LaunchStatus(is_float ? LaunchFloat8Product(queue, now, output.codes, output.y)
                                 : LaunchByteProduct(queue, now, output),
                        "QLinearMatMul");
  });
}
WEFT_REGISTER_KERNEL("", "QLinearMatMul", DeviceKind::kCuda, PrepareQLinearMatMul);

}  // namespace
}  // namespace weft::cuda
