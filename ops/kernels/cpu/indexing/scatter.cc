// ScatterElements, ScatterND, GatherND and its gradient, TensorScatter.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/element_walk.h"
#include "ops/kernels/cpu/blocks/index_tuples.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "ops/kernels/cpu/blocks/wide_element.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

// ---- What arrives at an element that is there already.

enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

Reduction ReductionOf(const PrepareContext& context) {
  const std::string name = context.attributes().String("reduction", "none");
  if (name == "add") return Reduction::kAdd;
  if (name == "mul") return Reduction::kMul;
  if (name == "max") return Reduction::kMax;
  return name == "min" ? Reduction::kMin : Reduction::kNone;
}

// NaN wins over numbers. Integers wrap around; bool adds as or, multiplies as and.
template <typename T>
T Combined(Reduction reduction, T old_value, T update) {
  using C = ComputeType<T>;
  const C a = Load(old_value);
  const C b = Load(update);
  switch (reduction) {
    case Reduction::kAdd:
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      } else {
        return Store<T>(static_cast<C>(a + b));
      }
    case Reduction::kMul:
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      } else {
        return Store<T>(static_cast<C>(a * b));
      }
    case Reduction::kMax:
      return a != a || a > b ? old_value : update;
    case Reduction::kMin:
      return a != a || a < b ? old_value : update;
    case Reduction::kNone:
      break;
  }
  return update;
}

void CopyData(const KernelContext& run, size_t bytes) {
  if (bytes > 0 && run.outputs[0] != run.inputs[0]) {
    std::memcpy(run.outputs[0], run.inputs[0], bytes);
  }
}

// ---- ScatterElements

template <typename L>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareScatterOf(const PrepareContext& context,
                                                         const ElementWalk& walk) {
  const DType dtype = context.InputDType(0);
  const Reduction reduction = ReductionOf(context);
  const size_t bytes = DTypeBytes(dtype, context.InputShape(0).num_elements());
  if (reduction == Reduction::kNone) {
    return PrepareByWidth(context, dtype, [&](auto element) {
      using T = decltype(element);
      return MakeKernel([walk, bytes](const KernelContext& run) {
        CopyData(run, bytes);
        const T* updates = Input<T>(run, 2);
        T* out = Output<T>(run, 0);
        return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t to) { out[to] = updates[i]; });
      });
    });
  }
  return PrepareByDType(context, dtype, RealTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([walk, bytes, reduction](const KernelContext& run) {
      CopyData(run, bytes);
      const T* updates = Input<T>(run, 2);
      T* out = Output<T>(run, 0);
      return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t to) {
        out[to] = Combined(reduction, out[to], updates[i]);
      });
    });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScatterElements(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ElementWalk walk, ElementWalk::Make(context, context.InputShape(0)));
  return PrepareByDType(context, context.InputDType(1), IndexTypes(), [&](auto index) {
    return PrepareScatterOf<decltype(index)>(context, walk);
  });
}

// ---- GatherND, ScatterND

IndexTuples TuplesOf(const PrepareContext& context, const Shape& data, const char* batch_dims) {
  return IndexTuples(data, context.InputShape(1),
                     static_cast<int>(context.attributes().Int(batch_dims, 0)));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherNd(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, context.InputDType(0)));
  const IndexTuples tuples = TuplesOf(context, context.InputShape(0), "batch_dims");
  return MakeKernel([tuples, width](const KernelContext& run) {
    const char* data = Input<char>(run, 0);
    char* out = Output<char>(run, 0);
    const int64_t bytes = tuples.row() * width;
    return tuples.ForEach(Input<int64_t>(run, 1), [&](int64_t i, int64_t from) {
      if (bytes > 0) std::memcpy(out + i * bytes, data + from * width, bytes);
    });
  });
}

// The gradients' rows are added in the order of the tuples.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherNdGrad(const PrepareContext& context) {
  const IndexTuples tuples = TuplesOf(context, context.OutputShape(0), "batch_dims");
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([tuples, elements](const KernelContext& run) {
      const T* dy = Input<T>(run, 0);
      T* out = Output<T>(run, 0);
      std::fill(out, out + elements, T{});
      const int64_t row = tuples.row();
      return tuples.ForEach(Input<int64_t>(run, 1), [&](int64_t i, int64_t to) {
        for (int64_t e = 0; e < row; ++e) {
          out[to + e] = Combined(Reduction::kAdd, out[to + e], dy[i * row + e]);
        }
      });
    });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScatterNd(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  const IndexTuples tuples = TuplesOf(context, context.InputShape(0), "");
  const Reduction reduction = ReductionOf(context);
  const size_t bytes = DTypeBytes(dtype, context.InputShape(0).num_elements());
  if (reduction == Reduction::kNone) {
    WEFT_ASSIGN_OR_RETURN(const int width, ElementBytes(context, dtype));
    return MakeKernel([tuples, width, bytes](const KernelContext& run) {
      CopyData(run, bytes);
      const char* updates = Input<char>(run, 2);
      char* out = Output<char>(run, 0);
      const int64_t row_bytes = tuples.row() * width;
      return tuples.ForEach(Input<int64_t>(run, 1), [&](int64_t i, int64_t to) {
        if (row_bytes > 0) std::memcpy(out + to * width, updates + i * row_bytes, row_bytes);
      });
    });
  }
  return PrepareByDType(context, dtype, RealTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([tuples, bytes, reduction](const KernelContext& run) {
      CopyData(run, bytes);
      const T* updates = Input<T>(run, 2);
      T* out = Output<T>(run, 0);
      const int64_t row = tuples.row();
      return tuples.ForEach(Input<int64_t>(run, 1), [&](int64_t i, int64_t to) {
        for (int64_t e = 0; e < row; ++e) {
          out[to + e] = Combined(reduction, out[to + e], updates[i * row + e]);
        }
      });
    });
  });
}

// ---- TensorScatter

// A cache seen as [batch, prefix, positions, inner elements], and how many positions an update has.
struct CacheLayout {
  int64_t batch;
  int64_t prefix;
  int64_t positions;
  int64_t inner;
  int64_t updated;
  bool circular;
};

// Where the first position of sample `b` goes.
absl::StatusOr<int64_t> FirstPosition(const CacheLayout& cache, const int64_t* starts, int64_t b) {
  const int64_t start = starts == nullptr ? 0 : starts[b];
  const bool fits = start >= 0 && (cache.circular || start <= cache.positions - cache.updated);
  if (fits) return start;
  return absl::InvalidArgumentError(absl::StrCat(
      "the write index at [", b, "] is ", start, "; with ", cache.updated,
      " positions to write into ", cache.positions,
      cache.circular ? " it must not be negative"
                     : " it must be in [0, number of positions - positions to write]"));
}

// copy(first element to write, first element to read), a run of `inner` elements each.
template <typename Fn>
absl::Status ForEachRun(const CacheLayout& cache, const int64_t* starts, Fn copy) {
  for (int64_t b = 0; b < cache.batch; ++b) {
    WEFT_ASSIGN_OR_RETURN(const int64_t start, FirstPosition(cache, starts, b));
    for (int64_t p = b * cache.prefix; p < (b + 1) * cache.prefix; ++p) {
      for (int64_t s = 0; s < cache.updated; ++s) {
        const int64_t position = (start % cache.positions + s) % cache.positions;
        copy((p * cache.positions + position) * cache.inner, (p * cache.updated + s) * cache.inner);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTensorScatter(const PrepareContext& context) {
  const Shape& past = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -2), past.rank()));
  const CacheLayout cache = {past.dim(0),
                             past.ProductOf(1, axis),
                             past.dim(axis),
                             past.ProductOf(axis + 1, past.rank()),
                             context.InputShape(1).dim(axis),
                             context.attributes().String("mode", "linear") == "circular"};
  const int bits = DTypeBits(context.InputDType(0));
  if (bits == 0) return context.Unimplemented("no kernel for this dtype");
  const size_t bytes = DTypeBytes(context.InputDType(0), past.num_elements());
  return MakeKernel([=, has_starts = context.HasInput(2)](const KernelContext& run) {
    CopyData(run, bytes);
    const int64_t* starts = has_starts ? Input<int64_t>(run, 2) : nullptr;
    if (bits < 8) {
      return ForEachRun(cache, starts, [&](int64_t to, int64_t from) {
        for (int64_t e = 0; e < cache.inner; ++e) {
          SetPackedElement(run.outputs[0], bits, to + e,
                           PackedElement(run.inputs[1], bits, from + e));
        }
      });
    }
    const int width = bits / 8;
    return ForEachRun(cache, starts, [&](int64_t to, int64_t from) {
      if (cache.inner == 0) return;
      std::memcpy(Output<char>(run, 0) + to * width, Input<char>(run, 1) + from * width,
                  cache.inner * width);
    });
  });
}

WEFT_REGISTER_KERNEL("", "ScatterElements", DeviceKind::kCpu, PrepareScatterElements);
WEFT_REGISTER_KERNEL("", "ScatterND", DeviceKind::kCpu, PrepareScatterNd);
WEFT_REGISTER_KERNEL("", "GatherND", DeviceKind::kCpu, PrepareGatherNd);
WEFT_REGISTER_KERNEL(kWeftDomain, "GatherNdGrad", DeviceKind::kCpu, PrepareGatherNdGrad);
WEFT_REGISTER_KERNEL("", "TensorScatter", DeviceKind::kCpu, PrepareTensorScatter);

}  // namespace
}  // namespace weft::cpu
