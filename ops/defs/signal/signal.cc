// DFT, STFT, MelWeightMatrix and the windows.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The one number in integer input i, when it is known; nullopt when absent or unknown.
absl::StatusOr<std::optional<int64_t>> KnownScalar(InferenceContext& context, int i) {
  WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, i));
  if (!values.has_value()) return std::optional<int64_t>();
  if (values->size() != 1) {
    return context.Error(absl::StrCat("input ", i, " must be one number, it has ", values->size()));
  }
  return std::optional<int64_t>((*values)[0]);
}

// Of a transform or window: its tables are made ahead.
constexpr int64_t kLongest = int64_t{1} << 24;

absl::Status CheckLength(const InferenceContext& context, const char* name, int64_t length) {
  if (length >= 1 && length <= kLongest) return absl::OkStatus();
  return context.Error(absl::StrCat(name, " is ", length, ", expected 1 to ", kLongest));
}

// ---- DFT: input [batch..., signal, ..., 1 or 2 (real, imaginary)].

struct DftModes {
  bool inverse;
  bool onesided;
};

absl::Status CheckDftInput(const InferenceContext& context, const SymbolicShape& x) {
  const bool fits =
      x.rank() >= 2 && (!x.dim(x.rank() - 1).is_known() || x.dim(x.rank() - 1).size() == 1 ||
                        x.dim(x.rank() - 1).size() == 2);
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("input has shape ", x.ToString(),
                                    ", expected a last axis of 1 (real) or 2 (complex)"));
}

// The size of the output along the axis: of a known length, or of one that is the input's.
absl::StatusOr<Dim> DftDim(InferenceContext& context, const Dim& input, DftModes modes) {
  if (context.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(const auto length, KnownScalar(context, 1));
    if (!length.has_value()) return Dim();
    WEFT_RETURN_IF_ERROR(CheckLength(context, "dft_length", *length));
    return Dim(modes.onesided && !modes.inverse ? *length / 2 + 1 : *length);
  }
  if (!modes.onesided) return input;
  if (!input.is_known()) return Dim();
  if (!modes.inverse) return Dim(input.size() / 2 + 1);
  const int64_t length = 2 * (input.size() - 1);
  WEFT_RETURN_IF_ERROR(CheckLength(context, "the length that the input asks for", length));
  return Dim(length);
}

absl::Status InferDft(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const DType dtype = context.InputType(0).dtype;
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckDftInput(context, x));
  const DftModes modes = {context.attributes().Int("inverse", 0) != 0,
                          context.attributes().Int("onesided", 0) != 0};
  WEFT_ASSIGN_OR_RETURN(const auto given, KnownScalar(context, 2));
  Dims y = x.dims();
  y.back() = Dim(modes.inverse && modes.onesided ? 1 : 2);
  if (context.HasInput(2) && !given.has_value()) {
    for (int i = 0; i + 1 < x.rank(); ++i) y[i] = Dim();
    return SetCheckedOutput(context, dtype, std::move(y));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, given.value_or(-2), x.rank()));
  if (axis == x.rank() - 1) {
    return context.Error("the axis must not be the last one, of real and imaginary parts");
  }
  WEFT_ASSIGN_OR_RETURN(y[axis], DftDim(context, x.dim(axis), modes));
  return SetCheckedOutput(context, dtype, std::move(y));
}

// Some five operations for each element and doubling (J. Cooley, J. Tukey, 1965).
Cost DftCost(const NodeView& view) {
  double doublings = 1;
  const double n = static_cast<double>(view.OutputShape(0).num_elements());
  for (double size = 1; size < n; size *= 2) ++doublings;
  return {2.5 * n * doublings, OperandBytes(view)};
}

// ---- Gradients. A transform is linear: its transpose is the other transform, but for the factor
// that the inverse divides by.

// Makes `length` elements of those along `axis`: cuts the end off, or adds zeros.
ValueId Resized(GraphBuilder& b, ValueId value, int axis, ValueId length) {
  const ValueId more = b.Op("Sub", {length, DimOf(b, value, axis)});
  const ValueId pads = b.Op("Concat", {b.Ints({0}), more}, {{"axis", int64_t{0}}});
  return b.Op("Pad", {value, pads, kNoValue, b.Ints({axis})});
}

// The real parts of complex numbers, the last axis of one element.
ValueId RealPart(GraphBuilder& b, ValueId value) {
  return b.Op("Slice", {value, b.Ints({0}), b.Ints({1}), b.Ints({-1})});
}

ValueId Transform(GraphBuilder& b, ValueId value, int axis, ValueId length, DftModes modes) {
  const ValueId scalar = b.Op("Squeeze", {length, b.Ints({0})});
  const ValueId along = b.Constant(Tensor::Scalar<int64_t>(axis));
  return b.Op("DFT", {value, scalar, along},
              {{"inverse", int64_t{modes.inverse}}, {"onesided", int64_t{modes.onesided}}});
}

// What arrives at the bins of a transform over `length` elements, at these elements. Bins that a
// onesided transform leaves out get none.
ValueId TransposedTransform(GraphBuilder& b, ValueId dy, int axis, ValueId length, bool inverse) {
  const ValueId back = Transform(b, Resized(b, dy, axis, length), axis, length, {!inverse, false});
  const ValueId factor = AsDType(b, length, b.type(dy).dtype);
  return b.Op(inverse ? "Div" : "Mul", {back, factor});
}

// Of a onesided inverse, which makes `length` real elements of the first half of the bins: each bin
// stands for two but the first and, when the length is even, the last.
ValueId TransposedRealInverse(GraphBuilder& b, ValueId dy, int axis, int rank, ValueId length) {
  const ValueId bins = Transform(b, dy, axis, length, {false, true});
  const ValueId positions = PositionsBelow(b, DimOf(b, bins, axis));
  const ValueId first = b.Op("Equal", {positions, b.Ints({0})});
  const ValueId last = b.Op("Equal", {b.Op("Mul", {positions, b.Ints({2})}), length});
  const DType dtype = b.type(dy).dtype;
  const ValueId count =
      b.Op("Where", {b.Op("Or", {first, last}), b.Scalar(dtype, 1), b.Scalar(dtype, 2)});
  std::vector<int64_t> shape(rank, 1);
  shape[axis] = -1;
  const ValueId weights =
      b.Op("Reshape", {b.Op("Div", {count, AsDType(b, length, dtype)}), b.Ints(shape)});
  return b.Op("Mul", {bins, weights});
}

// The last axis of a signal: 1 when it is real, 2 when it is complex.
absl::StatusOr<int64_t> PartsOf(const GradientContext& context, ValueId signal) {
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, signal));
  const Dim& last = context.graph().value(signal).type.shape.dim(rank - 1);
  if (last.is_known()) return last.size();
  return absl::UnimplementedError(
      absl::StrCat("node '", context.node().name, "': the gradient of ", context.node().op,
                   " needs to know whether its input is real or complex"));
}

absl::StatusOr<int> DftAxis(const GradientContext& context, int rank) {
  if (!context.Input(2).valid()) return rank - 2;
  const ValueDef& axis = context.graph().value(context.Input(2));
  if (axis.source != ValueSource::kConstant) {
    return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                                 "': the gradient of DFT needs its axis ('",
                                                 axis.name, "') as a constant"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ToInt64s(axis.constant));
  if (values.size() != 1) return absl::InvalidArgumentError("the axis must be one number");
  return NormalizeAxis(values[0], rank);
}

absl::Status DftGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId x = context.Input(0);
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, x));
  WEFT_ASSIGN_OR_RETURN(const int axis, DftAxis(context, rank));
  WEFT_ASSIGN_OR_RETURN(const int64_t parts, PartsOf(context, x));
  const bool inverse = context.node().attributes.Int("inverse", 0) != 0;
  const bool onesided = context.node().attributes.Int("onesided", 0) != 0;
  ValueId dx;
  if (inverse && onesided) {
    dx = TransposedRealInverse(b, dy, axis, rank, DimOf(b, dy, axis));
  } else {
    ValueId length = DimOf(b, x, axis);
    if (context.Input(1).valid()) {
      length = b.Op("Reshape", {AsDType(b, context.Input(1), DType::kInt64), b.Ints({1})});
    }
    dx = TransposedTransform(b, dy, axis, length, inverse);
  }
  if (parts == 1) dx = RealPart(b, dx);
  context.SetInputGradient(0, Resized(b, dx, axis, DimOf(b, x, axis)));
  return b.status();
}

// The positions in the signal of the elements of all frames, [frames, length].
ValueId FramePositions(GradientContext& context, ValueId frames, ValueId length) {
  GraphBuilder& b = context.builder();
  const ValueId step = b.Op("Reshape", {AsDType(b, context.Input(1), DType::kInt64), b.Ints({1})});
  const ValueId starts = b.Op("Mul", {PositionsBelow(b, frames), step});
  return b.Op("Add", {b.Op("Unsqueeze", {starts, b.Ints({1})}), PositionsBelow(b, length)});
}

// A frame of the signal, times the window, is transformed.
absl::Status StftGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId signal = context.Input(0);
  const ValueId window = context.Input(2);
  WEFT_ASSIGN_OR_RETURN(const int64_t parts, PartsOf(context, signal));
  ValueId length = DimOf(b, window.valid() ? window : signal, window.valid() ? 0 : 1);
  if (context.Input(3).valid()) {
    length = b.Op("Reshape", {AsDType(b, context.Input(3), DType::kInt64), b.Ints({1})});
  }
  const ValueId positions = FramePositions(context, DimOf(b, dy, 1), length);
  ValueId gradient = TransposedTransform(b, dy, 2, length, /*inverse=*/false);
  if (parts == 1) gradient = RealPart(b, gradient);
  if (window.valid() && context.NeedsInputGradient(2)) {
    const ValueId frames = b.Op("Gather", {signal, positions}, {{"axis", int64_t{1}}});
    context.SetInputGradient(2,
                             b.Op("ReduceSum", {b.Op("Mul", {gradient, frames}), b.Ints({0, 1, 3})},
                                  {{"keepdims", int64_t{0}}}));
  }
  if (!context.NeedsInputGradient(0)) return b.status();
  if (window.valid()) {
    gradient = b.Op("Mul", {gradient, b.Op("Unsqueeze", {window, b.Ints({1})})});
  }
  context.SetInputGradient(
      0, b.WeftOp("GatherGrad", {gradient, positions, ShapeOf(b, signal)}, {{"axis", int64_t{1}}}));
  return b.status();
}

// ---- STFT: signal [batch, signal, 1 or 2] -> [batch, frames, bins, 2].

absl::Status InferStft(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const DType dtype = context.InputType(0).dtype;
  const bool onesided = context.attributes().Int("onesided", 1) != 0;
  if (context.HasInput(2)) WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  if (x.has_rank() && x.rank() != 3) {
    return context.Error(
        absl::StrCat("signal has shape ", x.ToString(), ", expected [batch, signal, 1 or 2]"));
  }
  if (x.has_rank()) WEFT_RETURN_IF_ERROR(CheckDftInput(context, x));
  WEFT_ASSIGN_OR_RETURN(const auto step, KnownScalar(context, 1));
  WEFT_ASSIGN_OR_RETURN(std::optional<int64_t> length, KnownScalar(context, 3));
  if (step.has_value()) WEFT_RETURN_IF_ERROR(CheckLength(context, "frame_step", *step));
  Dims y = UnknownDims(4);
  y[3] = Dim(2);
  if (x.has_rank()) y[0] = x.dim(0);
  if (context.HasInput(2) && context.InputShape(2).has_rank()) {
    const SymbolicShape& window = context.InputShape(2);
    const bool fits = window.rank() == 1 &&
                      (!length.has_value() || MergeDims(window.dim(0), Dim(*length)).has_value());
    if (!fits) {
      return context.Error(absl::StrCat("window has shape ", window.ToString(),
                                        ", expected one value per element of a frame"));
    }
    if (!context.HasInput(3) && window.dim(0).is_known()) length = window.dim(0).size();
  }
  if (!context.HasInput(2) && !context.HasInput(3) && x.has_rank() && x.dim(1).is_known()) {
    length = x.dim(1).size();
  }
  if (length.has_value()) {
    WEFT_RETURN_IF_ERROR(CheckLength(context, "frame_length", *length));
    y[2] = Dim(onesided ? *length / 2 + 1 : *length);
    if (step.has_value() && x.has_rank() && x.dim(1).is_known()) {
      const int64_t slack = x.dim(1).size() - *length;
      if (slack < 0) {
        return context.Error(
            absl::StrCat("a frame of ", *length, " does not fit signal ", x.ToString()));
      }
      y[1] = Dim(slack / *step + 1);
    }
  }
  return SetCheckedOutput(context, dtype, std::move(y));
}

// ---- Windows and MelWeightMatrix.

absl::StatusOr<DType> OutputType(const InferenceContext& context) {
  const int64_t type = context.attributes().Int("output_datatype", 1);
  for (const DType dtype : kNumericTypes) {
    if (type == static_cast<int64_t>(dtype)) return dtype;
  }
  return context.Error(
      absl::StrCat("attribute 'output_datatype' is ", type, ", which is no numeric type"));
}

absl::Status InferWindow(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, OutputType(context));
  WEFT_ASSIGN_OR_RETURN(const auto size, KnownScalar(context, 0));
  Dim dim;
  if (size.has_value()) {
    if (*size != 0) WEFT_RETURN_IF_ERROR(CheckLength(context, "size", *size));
    dim = Dim(*size);
  } else if (const std::optional<Dims> dims = context.InputDims(0);
             dims.has_value() && dims->size() == 1) {
    dim = (*dims)[0];
  }
  return SetCheckedOutput(context, dtype, {dim});
}

absl::Status InferMelWeightMatrix(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, OutputType(context));
  WEFT_ASSIGN_OR_RETURN(const auto bins, KnownScalar(context, 0));
  WEFT_ASSIGN_OR_RETURN(const auto length, KnownScalar(context, 1));
  if (length.has_value()) WEFT_RETURN_IF_ERROR(CheckLength(context, "dft_length", *length));
  if (bins.has_value()) {
    WEFT_RETURN_IF_ERROR(CheckLength(context, "num_mel_bins", *bins));
    if (length.has_value() && *bins > 16 * kLongest / *length) {
      return context.Error(
          absl::StrCat("a matrix of ", *length / 2 + 1, " x ", *bins, " weights is too large"));
    }
  }
  return SetCheckedOutput(
      context, dtype,
      {length.has_value() ? Dim(*length / 2 + 1) : Dim(), bins.has_value() ? Dim(*bins) : Dim()});
}

OpSchema WindowSchema(std::string name) {
  return OpSchema::Onnx(std::move(name))
      .Input("size", kIndexTypes)
      .Output("output")
      .Attr("output_datatype", AttributeType::kInt)
      .Attr("periodic", AttributeType::kInt)
      .ValueInputs({0})
      .Infer(InferWindow)
      .NoGradient("made of sizes, positions or attributes alone")
      .CostOf(FlopsPerElement(20));
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("DFT")
                     .Input("input", kFloatTypes)
                     .OptionalInput("dft_length", kIndexTypes)
                     .OptionalInput("axis", {DType::kInt64})
                     .Output("output")
                     .Attr("inverse", AttributeType::kInt)
                     .Attr("onesided", AttributeType::kInt)
                     .ValueInputs({1, 2})
                     .Infer(InferDft)
                     .Gradient(DftGradient)
                     .CostOf(DftCost));

WEFT_REGISTER_OP(OpSchema::Onnx("STFT")
                     .Input("signal", kFloatTypes)
                     .Input("frame_step", kIndexTypes)
                     .OptionalInput("window", kFloatTypes)
                     .OptionalInput("frame_length", kIndexTypes)
                     .Output("output")
                     .Attr("onesided", AttributeType::kInt)
                     .ValueInputs({1, 3})
                     .Infer(InferStft)
                     .Gradient(StftGradient)
                     .CostOf(DftCost));

WEFT_REGISTER_OP(WindowSchema("HannWindow"));
WEFT_REGISTER_OP(WindowSchema("HammingWindow"));
WEFT_REGISTER_OP(WindowSchema("BlackmanWindow"));

WEFT_REGISTER_OP(OpSchema::Onnx("MelWeightMatrix")
                     .Input("num_mel_bins", kIndexTypes)
                     .Input("dft_length", kIndexTypes)
                     .Input("sample_rate", kIndexTypes)
                     .Input("lower_edge_hertz", kFloatTypes)
                     .Input("upper_edge_hertz", kFloatTypes)
                     .Output("output")
                     .Attr("output_datatype", AttributeType::kInt)
                     .ValueInputs({0, 1, 2, 3, 4})
                     .Infer(InferMelWeightMatrix)
                     .NoGradient("made of sizes, positions or attributes alone"));

}  // namespace weft
