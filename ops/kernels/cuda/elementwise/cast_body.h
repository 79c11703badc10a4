// Casts between any two types.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/elementwise/cast_ops.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// y[i] = x[i], both of a number type or bool. An element is exact in AnyNumber, so the result is
// that of a body for the two types.
struct AnyCastBody {
  const void* x;
  void* y;
  int64_t count;
  DType from;
  DType to;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const AnyNumber number = ReadAny(gpu, x, from, i);
      switch (to) {
        case DType::kFloat64:
          Put<double>(gpu, i, number);
          break;
        case DType::kFloat16:
          Put<Float16>(gpu, i, number);
          break;
        case DType::kBfloat16:
          Put<Bfloat16>(gpu, i, number);
          break;
        case DType::kInt8:
          Put<int8_t>(gpu, i, number);
          break;
        case DType::kInt16:
          Put<int16_t>(gpu, i, number);
          break;
        case DType::kInt32:
          Put<int32_t>(gpu, i, number);
          break;
        case DType::kInt64:
          Put<int64_t>(gpu, i, number);
          break;
        case DType::kBool:
          gpu.Global(static_cast<uint8_t*>(y))[i] = VisitNumber(number, TruthOp());
          break;
        case DType::kUint8:
          Put<uint8_t>(gpu, i, number);
          break;
        case DType::kUint16:
          Put<uint16_t>(gpu, i, number);
          break;
        case DType::kUint32:
          Put<uint32_t>(gpu, i, number);
          break;
        case DType::kUint64:
          Put<uint64_t>(gpu, i, number);
          break;
        default:
          Put<float>(gpu, i, number);
      }
    }
  }

 private:
  template <typename To, class Gpu>
  WEFT_GPU void Put(Gpu& gpu, int64_t i, const AnyNumber& number) const {
    gpu.Global(static_cast<To*>(y))[i] = Narrow<To>(VisitNumber(number, CastOp<To>()));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_BODY_H_
