#include "ops/kernels/cpu/matrix_product.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/onednn.h"
#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Desc = dnnl::memory::desc;

// ---- Plain loops.

// The type in which products of T are summed: unsigned for integers, whose overflow wraps.
template <typename T, typename = void>
struct SumTypeOf {
  using Type = ComputeType<T>;
};
template <typename T>
struct SumTypeOf<T, std::enable_if_t<std::is_integral_v<T>>> {
  using Type = std::make_unsigned_t<T>;
};

// The offsets of A's and B's matrices for each matrix of Y.
struct BatchOffsets {
  std::vector<int64_t> a;
  std::vector<int64_t> b;
};

BatchOffsets OffsetsOf(const MatrixProduct& product) {
  const Shape batch = product.batch();
  BatchOffsets offsets;
  const auto offset_in = [&](const Shape& own, int64_t flat, int64_t matrix) {
    int64_t offset = 0;
    int64_t stride = matrix;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      if (own.dim(d) != 1) offset += (flat % batch.dim(d)) * stride;
      flat /= batch.dim(d);
      stride *= own.dim(d);
    }
    return offset;
  };
  for (int64_t i = 0; i < batch.num_elements(); ++i) {
    offsets.a.push_back(offset_in(product.a_batch, i, product.m * product.k));
    offsets.b.push_back(offset_in(product.b_batch, i, product.k * product.n));
  }
  return offsets;
}

template <typename T>
class LoopProduct final : public Kernel {
 public:
  LoopProduct(const PrepareContext& context, const MatrixProduct& product)
      : product_(product), offsets_(OffsetsOf(product)), threads_(context.threads()) {}

  absl::Status Run(const KernelContext& context) override {
    const int64_t rows = product_.m * static_cast<int64_t>(offsets_.a.size());
    const double row_nanoseconds = 0.5 * static_cast<double>(product_.n * (product_.k + 1));
    ParallelFor(threads_, rows, row_nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) ComputeRow(context, row);
    });
    return absl::OkStatus();
  }

 private:
  using Sum = typename SumTypeOf<T>::Type;
  static constexpr int64_t kColumns = 64;

  void ComputeRow(const KernelContext& context, int64_t row) const {
    const int64_t matrix = row / product_.m;
    const int64_t i = row % product_.m;
    const T* a =
        Input<T>(context, 0) + offsets_.a[matrix] + i * (product_.trans_a ? 1 : product_.k);
    const T* b = Input<T>(context, 1) + offsets_.b[matrix];
    const T* c = product_.has_c ? Input<T>(context, 2) + i * product_.c_row_stride : nullptr;
    T* y = Output<T>(context, 0) + row * product_.n;
    for (int64_t begin = 0; begin < product_.n; begin += kColumns) {
      const int64_t count = std::min(kColumns, product_.n - begin);
      Sum sums[kColumns] = {};
      SumColumns(a, b, begin, count, sums);
      for (int64_t j = 0; j < count; ++j) {
        y[begin + j] =
            Finish(sums[j], c == nullptr ? nullptr : c + (begin + j) * product_.c_column_stride);
      }
    }
  }

  void SumColumns(const T* a, const T* b, int64_t begin, int64_t count, Sum* sums) const {
    const int64_t a_stride = product_.trans_a ? product_.m : 1;
    const int64_t row_stride = product_.trans_b ? 1 : product_.n;
    const int64_t column_stride = product_.trans_b ? product_.k : 1;
    for (int64_t k = 0; k < product_.k; ++k) {
      const Sum factor = static_cast<Sum>(Load(a[k * a_stride]));
      const T* b_row = b + k * row_stride + begin * column_stride;
      for (int64_t j = 0; j < count; ++j) {
        sums[j] += factor * static_cast<Sum>(Load(b_row[j * column_stride]));
      }
    }
  }

  T Finish(Sum sum, const T* c) const {
    auto value = static_cast<ComputeType<T>>(sum);
    if (product_.alpha != 1.0f) value = static_cast<ComputeType<T>>(product_.alpha * value);
    if (c != nullptr) {
      const ComputeType<T> addend = Load(*c);
      value = static_cast<ComputeType<T>>(
          static_cast<Sum>(value) +
          static_cast<Sum>(product_.beta == 1.0f
                               ? addend
                               : static_cast<ComputeType<T>>(product_.beta * addend)));
    }
    return Store<T>(value);
  }

  const MatrixProduct product_;
  const BatchOffsets offsets_;
  const int threads_;
};

// ---- oneDNN.

// How C enters: not at all, as the primitive's bias, or by being in Y before the product is added.
enum class BiasMode : uint8_t { kNone, kFused, kPrefilled };

BiasMode BiasModeOf(const MatrixProduct& product) {
  if (!product.has_c) return BiasMode::kNone;
  const bool one_row =
      product.c_row_stride == 0 && (product.c_column_stride == 1 || product.n == 1);
  return one_row && product.alpha == 1.0f && product.beta == 1.0f ? BiasMode::kFused
                                                                  : BiasMode::kPrefilled;
}

// A matrix operand, of which the last two axes are [rows, columns] whatever its storage order.
Desc MatrixDesc(const Shape& batch, int64_t rows, int64_t columns, bool transposed) {
  Shape shape = batch;
  shape.AddDim(rows);
  shape.AddDim(columns);
  auto strides = shape.Strides();
  if (transposed) {
    strides[shape.rank() - 2] = 1;
    strides[shape.rank() - 1] = rows;
  }
  return Desc(ToDims(shape), dnnl::memory::data_type::f32,
              dnnl::memory::dims(strides.begin(), strides.end()));
}

class OnednnProduct final : public Kernel {
 public:
  // May throw dnnl::error.
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const MatrixProduct& product) {
    auto kernel = std::make_unique<OnednnProduct>(OnednnThreads(context), product);
    WEFT_RETURN_IF_ERROR(kernel->Prepare(context.InputIsConstant(1)));
    return kernel;
  }

  OnednnProduct(int threads, const MatrixProduct& product)
      : product_(product), bias_(BiasModeOf(product)), threads_(threads) {}

  absl::Status Run(const KernelContext& context) override {
    const ThreadBudget budget(threads_);
    WEFT_ASSIGN_OR_RETURN(const void* const weights, weights_.Get(context.inputs[1]));
    if (bias_ == BiasMode::kFused) {
      return call_.Run(
          {context.inputs[0], weights, context.outputs[0], context.workspace, context.inputs[2]});
    }
    if (bias_ == BiasMode::kPrefilled) Prefill(context);
    return call_.Run({context.inputs[0], weights, context.outputs[0], context.workspace});
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }
  size_t retained_bytes() const override { return weights_.bytes(); }

 private:
  absl::Status Prepare(bool pack) {
    const ThreadBudget budget(threads_);
    const Desc a = MatrixDesc(product_.a_batch, product_.m, product_.k, product_.trans_a);
    const Desc b = MatrixDesc(product_.b_batch, product_.k, product_.n, product_.trans_b);
    const Desc y = MatrixDesc(product_.batch(), product_.m, product_.n, false);
    const Desc any(b.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    dnnl::memory::dims bias_dims(y.dims().size(), 1);
    bias_dims.back() = product_.n;
    const Desc bias = MatrixDesc(Shape{}, 1, product_.n, false).reshape(bias_dims);
    dnnl::primitive_attr attributes = UserScratchpad();
    if (product_.alpha != 1.0f) attributes.set_output_scales(0, {product_.alpha});
    if (bias_ == BiasMode::kPrefilled) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::desc desc = bias_ == BiasMode::kFused
                                        ? dnnl::matmul::desc(a, pack ? any : b, bias, y)
                                        : dnnl::matmul::desc(a, pack ? any : b, y);
    const dnnl::matmul::primitive_desc primitive(desc, attributes, OnednnEngine());
    WEFT_ASSIGN_OR_RETURN(weights_, PackedWeights::Create(b, primitive.weights_desc()));
    workspace_bytes_ = primitive.scratchpad_desc().get_size();
    std::vector<OnednnCall::Argument> arguments = {
        {DNNL_ARG_SRC, a},
        {DNNL_ARG_WEIGHTS, primitive.weights_desc()},
        {DNNL_ARG_DST, y},
        {DNNL_ARG_SCRATCHPAD, primitive.scratchpad_desc()}};
    if (bias_ == BiasMode::kFused) arguments.push_back({DNNL_ARG_BIAS, bias});
    call_ = OnednnCall(dnnl::matmul(primitive), arguments);
    return absl::OkStatus();
  }

  void Prefill(const KernelContext& context) const {
    const float* c = Input<float>(context, 2);
    float* y = Output<float>(context, 0);
    for (int64_t i = 0; i < product_.m; ++i) {
      for (int64_t j = 0; j < product_.n; ++j) {
        y[i * product_.n + j] =
            product_.beta * c[i * product_.c_row_stride + j * product_.c_column_stride];
      }
    }
  }

  const MatrixProduct product_;
  const BiasMode bias_;
  const int threads_;
  OnednnCall call_;
  PackedWeights weights_;
  size_t workspace_bytes_ = 0;
};

// oneDNN takes twelve axes.
constexpr int kMostBatchAxes = 10;

}  // namespace

Shape MatrixProduct::batch() const {
  Shape shape = a_batch;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) == 1) shape.set_dim(i, b_batch.dim(i));
  }
  return shape;
}

MatrixProduct Simplified(const MatrixProduct& product) {
  MatrixProduct simple = product;
  const bool rows_only = product.b_batch.num_elements() == 1 && !product.trans_a &&
                         (!product.has_c || product.c_row_stride == 0);
  if (rows_only) {
    simple.m *= product.a_batch.num_elements();
    simple.a_batch = simple.b_batch = Shape{};
    return simple;
  }
  simple.a_batch = simple.b_batch = Shape{};
  for (int i = 0; i < product.a_batch.rank(); ++i) {
    const int64_t a = product.a_batch.dim(i);
    const int64_t b = product.b_batch.dim(i);
    if (a == 1 && b == 1) continue;
    const int last = simple.a_batch.rank() - 1;
    const bool alike = last >= 0 &&
                       (a == b) == (simple.a_batch.dim(last) == simple.b_batch.dim(last)) &&
                       (a == b || (a == 1) == (simple.a_batch.dim(last) == 1));
    if (alike) {
      simple.a_batch.set_dim(last, simple.a_batch.dim(last) * a);
      simple.b_batch.set_dim(last, simple.b_batch.dim(last) * b);
    } else {
      simple.a_batch.AddDim(a);
      simple.b_batch.AddDim(b);
    }
  }
  return simple;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLoopProduct(const PrepareContext& context,
                                                           const MatrixProduct& product) {
  using Types = TypeList<float, double, Float16, Bfloat16, int32_t, int64_t, uint32_t, uint64_t>;
  return PrepareByDType(context, context.InputDType(0), Types{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return std::make_unique<LoopProduct<decltype(zero)>>(context, product);
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatrixProduct(const PrepareContext& context,
                                                             const MatrixProduct& product) {
  const MatrixProduct simple = Simplified(product);
  const bool empty = simple.m == 0 || simple.n == 0 || simple.k == 0 ||
                     simple.a_batch.num_elements() == 0 || simple.b_batch.num_elements() == 0;
  if (empty || context.InputDType(0) != DType::kFloat32 || simple.a_batch.rank() > kMostBatchAxes) {
    return PrepareLoopProduct(context, simple);
  }
  return CatchOnednn(context, [&] { return OnednnProduct::Create(context, simple); });
}

}  // namespace weft::cpu
