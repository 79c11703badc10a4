// Kernels around a function of one element or two, for any dtype: plain loops over threads.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_MAP_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_MAP_H_

#include <memory>
#include <utility>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {

// out[i] = fn(x[i]): `fn` takes the compute type of T and returns that of R.
template <typename T, typename R, typename Fn>
std::unique_ptr<Kernel> MakeMap(int64_t elements, int threads, double nanoseconds, Fn fn) {
  return MakeKernel([=](const KernelContext& context) {
    const T* x = Input<T>(context, 0);
    R* out = Output<R>(context, 0);
    ParallelFor(threads, elements, nanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = Store<R>(fn(Load(x[i])));
    });
    return absl::OkStatus();
  });
}

// The plan of a node with two operands that broadcast.
inline BroadcastPlan PlanOfTwo(const PrepareContext& context) {
  return BroadcastPlan::Make(context.OutputShape(0),
                             {context.InputShape(0), context.InputShape(1)});
}

// out = fn(a, b) by the plan: `fn` takes the compute types of A and B and returns that of R.
template <typename A, typename B, typename R, typename Fn>
std::unique_ptr<Kernel> MakeMapOfTwo(BroadcastPlan plan, int threads, double nanoseconds, Fn fn) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const A* a = Input<A>(context, 0);
    const B* b = Input<B>(context, 1);
    R* out = Output<R>(context, 0);
    const int64_t a_step = plan.inner_strides[0];
    const int64_t b_step = plan.inner_strides[1];
    ForEachRun(plan, threads, nanoseconds,
               [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
                 const A* x = a + offsets[0];
                 const B* y = b + offsets[1];
                 for (int64_t i = 0; i < count; ++i) {
                   out[to + i] = Store<R>(fn(Load(x[i * a_step]), Load(y[i * b_step])));
                 }
               });
    return absl::OkStatus();
  });
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_MAP_H_
