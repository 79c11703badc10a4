// Cast and BitCast. The byte-sized and larger real types in loops of their own; the 8-bit
// and 4-bit storage types, which no computation uses, through CastTensor (which allocates).
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/half_simd.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "platform/status_macros.h"
#include "tensor/host_memory.h"
#include "tensor/small_float.h"
#include "tensor/tensor.h"

namespace weft::cpu {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// Towards zero, NaN to 0, saturating.
template <typename To>
To Saturate(double value) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::min();
  }
  if (value >= static_cast<double>(std::numeric_limits<To>::max())) {
    return std::numeric_limits<To>::max();
  }
  return static_cast<To>(value);
}

// One element, by the rules that CastTensor states. `value` is not of a 16-bit float type.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<From, float> || sizeof(From) <= 2) {
      return Store<To>(static_cast<float>(value));
    } else {  // one rounding, not two
      const uint32_t code = EncodeSmallFloat(DTypeOf<To>::value, static_cast<double>(value));
      return To{static_cast<uint16_t>(code)};
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if constexpr (sizeof(To) >= 4) return Saturate<To>(value);
    return static_cast<To>(Saturate<int32_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
std::unique_ptr<Kernel> MakeCast(int64_t elements, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    const From* x = Input<From>(context, 0);
    To* out = Output<To>(context, 0);
    if constexpr (std::is_same_v<From, To>) {
      if (elements > 0) std::memcpy(out, x, elements * sizeof(To));
    } else if constexpr (kIsHalf<From> && std::is_same_v<To, float>) {
      ParallelFor(threads, elements, kArithmeticNanoseconds, kElementGrain,
                  [&](int64_t begin, int64_t end) {
                    WidenHalf(x + begin, out + begin, static_cast<size_t>(end - begin));
                  });
    } else if constexpr (std::is_same_v<From, float> && kIsHalf<To>) {
      ParallelFor(threads, elements, kArithmeticNanoseconds, kElementGrain,
                  [&](int64_t begin, int64_t end) {
                    NarrowToHalf(x + begin, out + begin, static_cast<size_t>(end - begin));
                  });
    } else {
      ParallelFor(threads, elements, 1.0, kElementGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = Convert<To>(Load(x[i]));
      });
    }
    return absl::OkStatus();
  });
}

// To the nearest bfloat16 towards zero: for models of operator sets before 24
// (onnx_import/ops/cast.cc).
template <typename From>
std::unique_ptr<Kernel> MakeCutOffCast(int64_t elements, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    const From* x = Input<From>(context, 0);
    Bfloat16* out = Output<Bfloat16>(context, 0);
    ParallelFor(threads, elements, 1.0, kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<float>(Load(x[i]));
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        // What makes a NaN may be among the bits that go.
        const uint32_t quiet = std::isnan(value) ? 0x00400000u : 0;
        out[i] = Bfloat16{static_cast<uint16_t>((bits | quiet) >> 16)};
      }
    });
    return absl::OkStatus();
  });
}

CastOptions OptionsOf(const Attributes& attributes) {
  CastOptions options;
  options.saturate = attributes.Int("saturate", 1) != 0;
  const std::string rounding = attributes.String("round_mode", "up");
  if (rounding == "down") options.power_rounding = PowerRounding::kDown;
  if (rounding == "nearest") options.power_rounding = PowerRounding::kNearest;
  return options;
}

std::unique_ptr<Kernel> MakeStorageCast(const PrepareContext& context) {
  const DType from = context.InputDType(0);
  const DType to = context.OutputDType(0);
  const Shape shape = context.InputShape(0);
  const CastOptions options = OptionsOf(context.attributes());
  return MakeKernel([=](const KernelContext& run) -> absl::Status {
    const size_t bytes = DTypeBytes(from, shape.num_elements());
    if (bytes == 0) return absl::OkStatus();
    const Tensor view(from, shape, AdoptHostMemory(run.inputs[0], bytes, nullptr));
    WEFT_ASSIGN_OR_RETURN(const Tensor converted, CastTensor(view, to, options));
    std::memcpy(run.outputs[0], converted.raw_data(), converted.bytes());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCast(const PrepareContext& context) {
  const auto is_computed = [](DType dtype) { return DispatchDType(dtype, [](auto) {}); };
  for (const DType dtype : {context.InputDType(0), context.OutputDType(0)}) {
    if (dtype == DType::kString || dtype == DType::kComplex64 || dtype == DType::kComplex128) {
      return context.Unimplemented(
          absl::StrCat("no conversion from or to ", std::string(DTypeName(dtype))));
    }
  }
  if (!is_computed(context.InputDType(0)) || !is_computed(context.OutputDType(0))) {
    return MakeStorageCast(context);
  }
  const int64_t elements = context.OutputShape(0).num_elements();
  const bool cuts_off = context.OutputDType(0) == DType::kBfloat16 &&
                        context.attributes().String("round_mode", "") == "down";
  return PrepareByDType(context, context.InputDType(0), RealTypes(), [&](auto from) {
    using From = decltype(from);
    if (cuts_off && IsFloatingPoint(context.InputDType(0))) {
      return absl::StatusOr<std::unique_ptr<Kernel>>(
          MakeCutOffCast<From>(elements, context.threads()));
    }
    return PrepareByDType(context, context.OutputDType(0), RealTypes(),
                          [&](auto to) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeCast<From, decltype(to)>(elements, context.threads());
                          });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBitCast(const PrepareContext& context) {
  const size_t bytes = DTypeBytes(context.InputDType(0), context.InputShape(0).num_elements());
  return MakeKernel([bytes](const KernelContext& run) {
    if (bytes > 0) std::memcpy(run.outputs[0], run.inputs[0], bytes);
    return absl::OkStatus();
  });
}

WEFT_REGISTER_KERNEL("", "Cast", DeviceKind::kCpu, PrepareCast);
WEFT_REGISTER_KERNEL("", "BitCast", DeviceKind::kCpu, PrepareBitCast);

}  // namespace
}  // namespace weft::cpu
