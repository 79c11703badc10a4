#include "ops/kernels/cpu/blocks/widened.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/blocks/half_simd.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

bool IsRealFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// The node as the inner factory sees it.
class WidenedContext final : public PrepareContext {
 public:
  WidenedContext(const PrepareContext& context, DType wide) : context_(context), wide_(wide) {
    values_.resize(context.num_inputs());
  }

  // Converts the values that are known.
  absl::Status Convert() {
    for (int i = 0; i < context_.num_inputs(); ++i) {
      if (!context_.HasInput(i) || InputDType(i) == context_.InputDType(i)) continue;
      const Tensor* value = context_.InputValue(i);
      if (value == nullptr) continue;
      WEFT_ASSIGN_OR_RETURN(values_[i], CastTensor(*value, wide_));
    }
    return absl::OkStatus();
  }

  const Node& node() const override { return context_.node(); }
  const Shape& InputShape(int i) const override { return context_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return context_.OutputShape(i); }
  DType InputDType(int i) const override { return Wide(context_.InputDType(i)); }
  DType OutputDType(int i) const override { return Wide(context_.OutputDType(i)); }
  const Tensor* InputValue(int i) const override {
    return values_[i].valid() ? &values_[i] : context_.InputValue(i);
  }
  const OperandSlice& InputSlice(int i) const override { return context_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return context_.OutputSlice(i); }
  Device& device() const override { return context_.device(); }
  int threads() const override { return context_.threads(); }
  bool strict() const override { return context_.strict(); }
  bool InputIsConstant(int i) const override { return context_.InputIsConstant(i); }

 private:
  DType Wide(DType dtype) const { return IsRealFloat(dtype) ? wide_ : dtype; }

  const PrepareContext& context_;
  const DType wide_;
  std::vector<Tensor> values_;
};

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename From, typename To>
void ConvertElements(int threads, int64_t count, const void* from, void* to) {
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  ParallelFor(threads, count, 0.2, 1024, [&](int64_t begin, int64_t end) {
    if constexpr (kIsHalf<From> && std::is_same_v<To, float>) {
      WidenHalf(source + begin, target + begin, static_cast<size_t>(end - begin));
    } else if constexpr (std::is_same_v<From, float> && kIsHalf<To>) {
      NarrowToHalf(source + begin, target + begin, static_cast<size_t>(end - begin));
    } else {
      for (int64_t i = begin; i < end; ++i) {
        target[i] = Store<To>(static_cast<ComputeType<To>>(Load(source[i])));
      }
    }
  });
}

using Conversion = void (*)(int threads, int64_t count, const void* from, void* to);

template <typename From>
Conversion ConversionFrom(DType to) {
  switch (to) {
    case DType::kFloat64:
      return ConvertElements<From, double>;
    case DType::kFloat16:
      return ConvertElements<From, Float16>;
    case DType::kBfloat16:
      return ConvertElements<From, Bfloat16>;
    default:
      return ConvertElements<From, float>;
  }
}

Conversion ConversionBetween(DType from, DType to) {
  switch (from) {
    case DType::kFloat64:
      return ConversionFrom<double>(to);
    case DType::kFloat16:
      return ConversionFrom<Float16>(to);
    case DType::kBfloat16:
      return ConversionFrom<Bfloat16>(to);
    default:
      return ConversionFrom<float>(to);
  }
}

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const PrepareContext& context, const WidenedContext& wide,
                std::unique_ptr<Kernel> inner)
      : threads_(context.threads()), inner_(std::move(inner)) {
    inner_offset_ = layout_.Add(inner_->workspace_bytes());
    inputs_.resize(context.num_inputs());
    outputs_.resize(context.num_outputs());
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) continue;
      Add(i, context.InputDType(i), wide.InputDType(i), wide.InputDType(i), context.InputShape(i),
          converted_inputs_);
    }
    for (int i = 0; i < context.num_outputs(); ++i) {
      if (!context.HasOutput(i)) continue;
      Add(i, wide.OutputDType(i), context.OutputDType(i), wide.OutputDType(i),
          context.OutputShape(i), converted_outputs_);
    }
  }

  size_t workspace_bytes() const override { return layout_.total(); }
  size_t retained_bytes() const override { return inner_->retained_bytes(); }

  absl::Status Run(const KernelContext& context) override {
    std::copy_n(context.inputs, inputs_.size(), inputs_.begin());
    std::copy_n(context.outputs, outputs_.size(), outputs_.begin());
    for (const Operand& operand : converted_inputs_) {
      void* const wide = At(context.workspace, operand.offset);
      operand.convert(threads_, operand.elements, context.inputs[operand.index], wide);
      inputs_[operand.index] = wide;
    }
    for (const Operand& operand : converted_outputs_) {
      outputs_[operand.index] = At(context.workspace, operand.offset);
    }
    KernelContext inner = context;
    inner.inputs = inputs_.data();
    inner.outputs = outputs_.data();
    inner.workspace = At(context.workspace, inner_offset_);
    WEFT_RETURN_IF_ERROR(inner_->Run(inner));
    for (const Operand& operand : converted_outputs_) {
      operand.convert(threads_, operand.elements, outputs_[operand.index],
                      context.outputs[operand.index]);
    }
    return absl::OkStatus();
  }

 private:
  struct Operand {
    int index;
    int64_t elements;
    size_t offset;  // of the wide elements in the workspace
    Conversion convert;
  };

  void Add(int index, DType from, DType to, DType wide, const Shape& shape,
           std::vector<Operand>& operands) {
    if (from == to) return;
    const int64_t elements = shape.num_elements();
    operands.push_back(Operand{index, elements, layout_.Add(DTypeBytes(wide, elements)),
                               ConversionBetween(from, to)});
  }

  const int threads_;
  std::unique_ptr<Kernel> inner_;
  WorkspaceLayout layout_;
  size_t inner_offset_;
  std::vector<Operand> converted_inputs_;
  std::vector<Operand> converted_outputs_;
  std::vector<const void*> inputs_;  // of this run
  std::vector<void*> outputs_;
};

}  // namespace

KernelFactory Widened(KernelFactory factory) {
  return [factory = std::move(factory)](
             const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    bool has_double = false;
    bool has_single = false;
    bool has_half = false;
    const auto look = [&](DType dtype) {
      has_double |= dtype == DType::kFloat64;
      has_single |= dtype == DType::kFloat32;
      has_half |= dtype == DType::kFloat16 || dtype == DType::kBfloat16;
    };
    for (int i = 0; i < context.num_inputs(); ++i) look(context.InputDType(i));
    for (int i = 0; i < context.num_outputs(); ++i) look(context.OutputDType(i));
    if (!has_half && !(has_double && has_single)) return factory(context);
    WidenedContext wide(context, has_double ? DType::kFloat64 : DType::kFloat32);
    WEFT_RETURN_IF_ERROR(wide.Convert());
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> inner, factory(wide));
    return std::make_unique<WidenedKernel>(context, wide, std::move(inner));
  };
}

}  // namespace weft::cpu
