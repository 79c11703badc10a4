// MatMulInteger, QLinearMatMul.
#include "ops/kernels/cpu/quantized/quantized_product.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/linear/integer_product.h"
#include "ops/kernels/cpu/quantized/quantize_codes.h"
#include "platform/status_macros.h"

namespace weft::cpu {

absl::StatusOr<ProductGeometry> ProductGeometry::Make(const PrepareContext& context, int a_input,
                                                      int b_input) {
  Shape a = context.InputShape(a_input);
  Shape b = context.InputShape(b_input);
  if (a.rank() == 1) a = Shape{1, a.dim(0)};
  if (b.rank() == 1) b = Shape{b.dim(0), 1};
  if (a.rank() < 2 || b.rank() < 2 || a.dim(a.rank() - 1) != b.dim(b.rank() - 2)) {
    return context.InvalidArgument("the operands do not share the summed axis");
  }
  ProductGeometry geometry;
  geometry.m = a.dim(a.rank() - 2);
  geometry.k = a.dim(a.rank() - 1);
  geometry.n = b.dim(b.rank() - 1);
  const Shape a_batch(a.dims().first(a.rank() - 2));
  const Shape b_batch(b.dims().first(b.rank() - 2));
  WEFT_ASSIGN_OR_RETURN(const Shape batch, BroadcastShapes(a_batch, b_batch));
  const auto item = [&batch](const Shape& operand, int64_t index) {
    int64_t place = 0;
    int64_t stride = 1;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      const int64_t at = index % batch.dim(d);
      index /= batch.dim(d);
      const int axis = d - (batch.rank() - operand.rank());
      if (axis < 0) continue;
      if (operand.dim(axis) != 1) place += at * stride;
      stride *= operand.dim(axis);
    }
    return place;
  };
  for (int64_t i = 0; i < batch.num_elements(); ++i) {
    geometry.a_items.push_back(item(a_batch, i));
    geometry.b_items.push_back(item(b_batch, i));
  }
  return geometry;
}

absl::StatusOr<PerLine> PerLine::Make(const PrepareContext& context, int input, int64_t lines,
                                      int64_t items) {
  const int64_t count = context.HasInput(input) ? context.InputShape(input).num_elements() : 1;
  PerLine result;
  if (count == 1) return result;
  if (count != lines && count != lines * items) {
    return context.InvalidArgument(
        absl::StrCat("input ", input, " has ", count, " elements, expected 1 or ", lines));
  }
  result.line_step_ = 1;
  result.item_step_ = count == lines ? 0 : lines;
  return result;
}

namespace {

// A zero point of any type, or 0 for an absent one.
class ZeroPoints {
 public:
  static absl::StatusOr<ZeroPoints> Make(const PrepareContext& context, int input, int64_t lines,
                                         int64_t items) {
    ZeroPoints zeros(context, input);
    WEFT_ASSIGN_OR_RETURN(zeros.places_, PerLine::Make(context, input, lines, items));
    return zeros;
  }
  float At(const KernelContext& run, int64_t item, int64_t line) const {
    return present_ ? reader_.At(run.inputs[input_], places_.Index(item, line)) : 0;
  }

 private:
  ZeroPoints(const PrepareContext& context, int input)
      : input_(input),
        present_(context.HasInput(input)),
        reader_(present_ ? context.InputDType(input) : DType::kUint8) {}

  int input_;
  bool present_;
  CodeReader reader_;
  PerLine places_;
};

// The 8-bit operands of a product, less their zero points, and their sums of products.
template <typename A, typename B>
class IntegerFactors {
 public:
  static absl::StatusOr<IntegerFactors> Make(const PrepareContext& context, int b_input, int a_zero,
                                             int b_zero, WorkspaceLayout& layout) {
    WEFT_ASSIGN_OR_RETURN(ProductGeometry geometry, ProductGeometry::Make(context, 0, b_input));
    const int64_t items = static_cast<int64_t>(geometry.a_items.size());
    WEFT_ASSIGN_OR_RETURN(const ZeroPoints a, ZeroPoints::Make(context, a_zero, geometry.m, items));
    WEFT_ASSIGN_OR_RETURN(const ZeroPoints b, ZeroPoints::Make(context, b_zero, geometry.n, items));
    return IntegerFactors(std::move(geometry), a, b, b_input, context.threads(), layout);
  }

  const ProductGeometry& geometry() const { return geometry_; }

  // Calls finish(item, row, the row's n sums) for every row of every item of the batch.
  template <typename Fn>
  void ForEachRow(const KernelContext& run, Fn finish) const {
    const int64_t length = PaddedLength(geometry_.k);
    int16_t* a = static_cast<int16_t*>(At(run.workspace, a_));
    int16_t* b = static_cast<int16_t*>(At(run.workspace, b_));
    int32_t* sums = static_cast<int32_t*>(At(run.workspace, sums_));
    for (int64_t item = 0; item < static_cast<int64_t>(geometry_.a_items.size()); ++item) {
      PackB(run, item, length, b);
      const double cost = 0.1 * static_cast<double>(geometry_.n * length) + 20;
      ParallelFor(threads_, geometry_.m, cost, 4, [&](int64_t begin, int64_t end) {
        const A* from = Input<A>(run, 0) + geometry_.a_items[item] * geometry_.m * geometry_.k;
        for (int64_t i = begin; i < end; ++i) {
          const int32_t zero = static_cast<int32_t>(a_zeros_.At(run, item, i));
          WidenRow(from + i * geometry_.k, 1, zero, geometry_.k, a + i * length);
        }
        IntegerProduct(a + begin * length, b, end - begin, geometry_.n, length,
                       sums + begin * geometry_.n, geometry_.n);
        for (int64_t i = begin; i < end; ++i) finish(item, i, sums + i * geometry_.n);
      });
    }
  }

 private:
  IntegerFactors(ProductGeometry geometry, const ZeroPoints& a, const ZeroPoints& b, int b_input,
                 int threads, WorkspaceLayout& layout)
      : geometry_(std::move(geometry)),
        a_zeros_(a),
        b_zeros_(b),
        b_input_(b_input),
        threads_(threads) {
    const int64_t length = PaddedLength(geometry_.k);
    a_ = layout.Add(geometry_.m * length * sizeof(int16_t));
    b_ = layout.Add(geometry_.n * length * sizeof(int16_t));
    sums_ = layout.Add(geometry_.m * geometry_.n * sizeof(int32_t));
  }

  // B's columns become rows.
  void PackB(const KernelContext& run, int64_t item, int64_t length, int16_t* b) const {
    const B* from = Input<B>(run, b_input_) + geometry_.b_items[item] * geometry_.k * geometry_.n;
    ParallelFor(threads_, geometry_.n, static_cast<double>(length), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t j = begin; j < end; ++j) {
                    const int32_t zero = static_cast<int32_t>(b_zeros_.At(run, item, j));
                    WidenRow(from + j, geometry_.n, zero, geometry_.k, b + j * length);
                  }
                });
  }

  ProductGeometry geometry_;
  ZeroPoints a_zeros_;
  ZeroPoints b_zeros_;
  int b_input_;
  int threads_;
  size_t a_ = 0;
  size_t b_ = 0;
  size_t sums_ = 0;
};

using ByteTypes = TypeList<uint8_t, int8_t>;

// ---- MatMulInteger.

template <typename A, typename B>
absl::StatusOr<std::unique_ptr<Kernel>> MakeMatMulInteger(const PrepareContext& context) {
  WorkspaceLayout layout;
  using Factors = IntegerFactors<A, B>;
  WEFT_ASSIGN_OR_RETURN(const Factors factors, Factors::Make(context, 1, 2, 3, layout));
  return MakeKernel(
      [factors](const KernelContext& run) {
        int32_t* out = Output<int32_t>(run, 0);
        const int64_t m = factors.geometry().m;
        const int64_t n = factors.geometry().n;
        factors.ForEachRow(run, [&](int64_t item, int64_t row, const int32_t* sums) {
          std::copy(sums, sums + n, out + (item * m + row) * n);
        });
        return absl::OkStatus();
      },
      layout.total());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMulInteger(const PrepareContext& context) {
  return PrepareByDType(context, context.InputDType(0), ByteTypes(), [&](auto a) {
    return PrepareByDType(context, context.InputDType(1), ByteTypes(), [&](auto b) {
      return MakeMatMulInteger<decltype(a), decltype(b)>(context);
    });
  });
}
WEFT_REGISTER_KERNEL("", "MatMulInteger", DeviceKind::kCpu, PrepareMatMulInteger);

// ---- QLinearMatMul.

// Makes codes of y from sums: y = round(sum * a_scale * b_scale / y_scale) + y_zero. The factor is
// computed in the type of the scales.
class Requantizer {
 public:
  static absl::StatusOr<Requantizer> Make(const PrepareContext& context,
                                          const ProductGeometry& geometry) {
    const int64_t items = static_cast<int64_t>(geometry.a_items.size());
    Requantizer result(context);
    WEFT_ASSIGN_OR_RETURN(result.a_, PerLine::Make(context, 1, geometry.m, items));
    WEFT_ASSIGN_OR_RETURN(result.b_, PerLine::Make(context, 4, geometry.n, items));
    WEFT_ASSIGN_OR_RETURN(result.y_, PerLine::Make(context, 6, geometry.m, items));
    WEFT_ASSIGN_OR_RETURN(result.y_zeros_, ZeroPoints::Make(context, 7, geometry.m, items));
    return result;
  }

  uint8_t Code(const KernelContext& run, int64_t item, int64_t row, int64_t column,
               double sum) const {
    const double scaled = sum * static_cast<double>(Factor(run, item, row, column));
    const double zero = static_cast<double>(y_zeros_->At(run, item, row));
    if (IsSmallFloat(dtype_)) {
      return static_cast<uint8_t>(EncodeSmallFloat(dtype_, scaled + zero));
    }
    const double whole = std::nearbyint(scaled + zero);
    const double code =
        std::clamp(whole == whole ? whole : range_.low, static_cast<double>(range_.low),
                   static_cast<double>(range_.high));
    return static_cast<uint8_t>(static_cast<int32_t>(code));
  }

 private:
  explicit Requantizer(const PrepareContext& context)
      : dtype_(context.OutputDType(0)),
        scale_dtype_(context.InputDType(1)),
        range_(RangeOfCodes(dtype_)),
        scales_(scale_dtype_) {}

  float Rounded(float value) const {
    if (scale_dtype_ == DType::kFloat16) return ToFloat(ToFloat16(value));
    if (scale_dtype_ == DType::kBfloat16) return ToFloat(ToBfloat16(value));
    return value;
  }
  float Factor(const KernelContext& run, int64_t item, int64_t row, int64_t column) const {
    const float a = scales_.At(run.inputs[1], a_.Index(item, row));
    const float b = scales_.At(run.inputs[4], b_.Index(item, column));
    const float y = scales_.At(run.inputs[6], y_.Index(item, row));
    return Rounded(Rounded(a * b) / y);
  }

  DType dtype_;
  DType scale_dtype_;
  CodeRange range_;
  CodeReader scales_;
  PerLine a_;
  PerLine b_;
  PerLine y_;
  std::optional<ZeroPoints> y_zeros_;
};

template <typename A, typename B>
absl::StatusOr<std::unique_ptr<Kernel>> MakeQLinearMatMul(const PrepareContext& context) {
  WorkspaceLayout layout;
  using Factors = IntegerFactors<A, B>;
  WEFT_ASSIGN_OR_RETURN(const Factors factors, Factors::Make(context, 3, 2, 5, layout));
  WEFT_ASSIGN_OR_RETURN(const Requantizer requantizer,
                        Requantizer::Make(context, factors.geometry()));
  return MakeKernel(
      [factors, requantizer](const KernelContext& run) {
        uint8_t* out = Output<uint8_t>(run, 0);
        const int64_t m = factors.geometry().m;
        const int64_t n = factors.geometry().n;
        factors.ForEachRow(run, [&](int64_t item, int64_t row, const int32_t* sums) {
          uint8_t* to = out + (item * m + row) * n;
          for (int64_t j = 0; j < n; ++j) to[j] = requantizer.Code(run, item, row, j, sums[j]);
        });
        return absl::OkStatus();
      },
      layout.total());
}

// 8-bit floats: plain loops over decoded elements.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareFloat8MatMul(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ProductGeometry g, ProductGeometry::Make(context, 0, 3));
  WEFT_ASSIGN_OR_RETURN(const Requantizer requantizer, Requantizer::Make(context, g));
  const int64_t items = static_cast<int64_t>(g.a_items.size());
  WEFT_ASSIGN_OR_RETURN(const ZeroPoints a_zeros, ZeroPoints::Make(context, 2, g.m, items));
  WEFT_ASSIGN_OR_RETURN(const ZeroPoints b_zeros, ZeroPoints::Make(context, 5, g.n, items));
  const CodeReader a(context.InputDType(0));
  const CodeReader b(context.InputDType(3));
  return MakeKernel([=](const KernelContext& run) {
    uint8_t* out = Output<uint8_t>(run, 0);
    for (int64_t item = 0; item < items; ++item) {
      for (int64_t i = 0; i < g.m; ++i) {
        const int64_t a_row = (g.a_items[item] * g.m + i) * g.k;
        for (int64_t j = 0; j < g.n; ++j) {
          const int64_t b_column = g.b_items[item] * g.k * g.n + j;
          const float a_zero = a_zeros.At(run, item, i);
          const float b_zero = b_zeros.At(run, item, j);
          double sum = 0;
          for (int64_t l = 0; l < g.k; ++l) {
            sum += static_cast<double>(a.At(run.inputs[0], a_row + l) - a_zero) *
                   static_cast<double>(b.At(run.inputs[3], b_column + l * g.n) - b_zero);
          }
          out[(item * g.m + i) * g.n + j] = requantizer.Code(run, item, i, j, sum);
        }
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareQLinearMatMul(const PrepareContext& context) {
  if (IsSmallFloat(context.InputDType(0)) || IsSmallFloat(context.InputDType(3))) {
    return PrepareFloat8MatMul(context);
  }
  return PrepareByDType(context, context.InputDType(0), ByteTypes(), [&](auto a) {
    return PrepareByDType(context, context.InputDType(3), ByteTypes(), [&](auto b) {
      return MakeQLinearMatMul<decltype(a), decltype(b)>(context);
    });
  });
}
WEFT_REGISTER_KERNEL("", "QLinearMatMul", DeviceKind::kCpu, PrepareQLinearMatMul);

}  // namespace
}  // namespace weft::cpu
