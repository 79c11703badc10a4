// ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum and
// ReduceLogSumExp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/reduction/reduce_plain.h"
#include "ops/kernels/cpu/reduction/reduce_plan.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- Extremes. NaN stays; of no elements: the end of the type.

template <typename T>
struct MaxReducer {
  using Total = ComputeType<T>;
  static constexpr Total kInitial = std::numeric_limits<Total>::has_infinity
                                        ? -std::numeric_limits<Total>::infinity()
                                        : std::numeric_limits<Total>::lowest();
  static void Add(Total& total, Total x) { total = x > total || x != x ? x : total; }
  static T Result(Total total, double) { return Store<T>(total); }
};

template <typename T>
struct MinReducer {
  using Total = ComputeType<T>;
  static constexpr Total kInitial = std::numeric_limits<Total>::has_infinity
                                        ? std::numeric_limits<Total>::infinity()
                                        : std::numeric_limits<Total>::max();
  static void Add(Total& total, Total x) { total = x < total || x != x ? x : total; }
  static T Result(Total total, double) { return Store<T>(total); }
};

// ---- Sums and products: whole numbers in 64 bits, wrapping around; floats in double.

template <typename T>
using WideTotal = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// A double as a T; whole numbers are cut off, as a cast does.
template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (!(value > -9.2e18)) return std::numeric_limits<T>::lowest();
    if (value > 9.2e18) return std::numeric_limits<T>::max();
    return static_cast<T>(static_cast<int64_t>(value));
  } else {
    return Store<T>(static_cast<ComputeType<T>>(value));
  }
}

template <typename T>
T FromTotal(WideTotal<T> total) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(total);
  return FromDouble<T>(static_cast<double>(total));
}

template <typename T>
struct ProdReducer {
  using Total = WideTotal<T>;
  static constexpr Total kInitial = 1;
  static void Add(Total& total, ComputeType<T> x) { total *= static_cast<Total>(x); }
  static T Result(Total total, double) { return FromTotal<T>(total); }
};

template <typename T>
struct L1Reducer {
  using Total = WideTotal<T>;
  static constexpr Total kInitial = 0;
  static void Add(Total& total, ComputeType<T> x) {
    const Total value = static_cast<Total>(x);
    total += x < 0 ? Total{0} - value : value;
  }
  static T Result(Total total, double) { return FromTotal<T>(total); }
};

template <typename T>
struct SumSquareReducer {
  using Total = WideTotal<T>;
  static constexpr Total kInitial = 0;
  static void Add(Total& total, ComputeType<T> x) {
    total += static_cast<Total>(x) * static_cast<Total>(x);
  }
  static T Result(Total total, double) { return FromTotal<T>(total); }
};

// ---- Functions of sums: in double for whole numbers, too.

template <typename T>
struct L2Reducer {
  using Total = double;
  static constexpr Total kInitial = 0;
  static void Add(Total& total, ComputeType<T> x) {
    total += static_cast<double>(x) * static_cast<double>(x);
  }
  static T Result(Total total, double) { return FromDouble<T>(std::sqrt(total)); }
};

template <typename T>
struct LogSumReducer {
  using Total = double;
  static constexpr Total kInitial = 0;
  static void Add(Total& total, ComputeType<T> x) { total += static_cast<double>(x); }
  static T Result(Total total, double) { return FromDouble<T>(std::log(total)); }
};

// The sum of e^(x - largest), with the largest so far, so that nothing overflows.
template <typename T>
struct LogSumExpReducer {
  struct Total {
    double largest;
    double sum;
  };
  static constexpr Total kInitial = {-std::numeric_limits<double>::infinity(), 0};
  static void Add(Total& total, ComputeType<T> element) {
    const double x = static_cast<double>(element);
    if (x == total.largest) {  // infinities, too, whose difference is none
      total.sum += 1;
    } else if (x > total.largest) {
      total.sum = total.sum * std::exp(total.largest - x) + 1;
      total.largest = x;
    } else {
      total.sum += std::exp(x - total.largest);
    }
  }
  static T Result(Total total, double) {
    return FromDouble<T>(total.largest + std::log(total.sum));
  }
};

// ---- Factories.

template <template <typename> class Reducer, typename Types>
KernelFactory Reduction(double nanoseconds = 1) {
  return [nanoseconds](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
    const ReducePlan plan = ReducePlan::Make(context.InputShape(0), reduced);
    const int threads = context.threads();
    return PrepareByDType(context, context.InputDType(0), Types(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using T = decltype(zero);
                            return MakeKernel([=](const KernelContext& run) {
                              ReducePlain<Reducer<T>, T>(plan, 1, threads, Input<T>(run, 0),
                                                         Output<T>(run, 0), nanoseconds);
                              return absl::OkStatus();
                            });
                          });
  };
}

// float32 whose reduced elements lie in runs: vectorized.
using RunFn = double (*)(const float* x, size_t n);
using JoinFn = double (*)(double total, double run);
using FinishFn = double (*)(double total);

std::unique_ptr<Kernel> MakeRuns(ReducePlan plan, double initial, RunFn run, JoinFn join,
                                 FinishFn finish, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const float* x = Input<float>(context, 0);
    float* out = Output<float>(context, 0);
    const double cost = 0.15 * static_cast<double>(plan.rows * plan.run.size);
    ParallelFor(threads, plan.outputs, 5 + cost, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const float* base = x + plan.KeptOffset(o);
        double total = initial;
        for (int64_t r = 0; r < plan.rows; ++r) {
          total = join(total, run(base + plan.RowOffset(r), plan.run.size));
        }
        out[o] = static_cast<float>(finish(total));
      }
    });
    return absl::OkStatus();
  });
}

double Plus(double total, double run) { return total + run; }
double Larger(double total, double run) { return run > total || run != run ? run : total; }
double Smaller(double total, double run) { return run < total || run != run ? run : total; }
double Itself(double total) { return total; }
double Root(double total) { return std::sqrt(total); }

// `general`, or the vectorized loop where the reduction is one of float32 over runs.
KernelFactory WithRuns(double initial, RunFn run, JoinFn join, FinishFn finish,
                       KernelFactory general) {
  return [=](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    if (context.InputDType(0) == DType::kFloat32) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
      ReducePlan plan = ReducePlan::Make(context.InputShape(0), reduced);
      if (!plan.has_columns() && plan.run.stride == 1 && plan.run.size >= 8) {
        return MakeRuns(std::move(plan), initial, run, join, finish, context.threads());
      }
    }
    return general(context);
  };
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

WEFT_REGISTER_KERNEL("", "ReduceMax", DeviceKind::kCpu,
                     WithRuns(-kInfinity, MaxFloat, Larger, Itself,
                              Reduction<MaxReducer, RealTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceMin", DeviceKind::kCpu,
                     WithRuns(kInfinity, MinFloat, Smaller, Itself,
                              Reduction<MinReducer, RealTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceProd", DeviceKind::kCpu, (Reduction<ProdReducer, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceL1", DeviceKind::kCpu,
                     WithRuns(0, SumOfMagnitudes, Plus, Itself,
                              Reduction<L1Reducer, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceL2", DeviceKind::kCpu,
                     WithRuns(0, SumOfSquares, Plus, Root, Reduction<L2Reducer, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceSumSquare", DeviceKind::kCpu,
                     WithRuns(0, SumOfSquares, Plus, Itself,
                              Reduction<SumSquareReducer, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceLogSum", DeviceKind::kCpu,
                     (Reduction<LogSumReducer, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "ReduceLogSumExp", DeviceKind::kCpu,
                     (Reduction<LogSumExpReducer, NumericTypes>(12)));

}  // namespace
}  // namespace weft::cpu
