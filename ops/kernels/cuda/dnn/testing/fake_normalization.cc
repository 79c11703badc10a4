#include "ops/kernels/cuda/dnn/testing/fake_normalization.h"

#include <cmath>
#include <vector>

#include "tensor/dtype.h"

namespace weft::cuda {
namespace {

// An operand of float32, float16 or bfloat16, with four axes.
class NormalizedTensor {
 public:
  NormalizedTensor(const FakeDescriptor& operation, int attribute,
                   const std::map<int64_t, void*>& addresses) {
    const FakeDescriptor& tensor = operation.Part(attribute);
    dims_ = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    strides_ = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    type_ = tensor.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    EXPECT_EQ(dims_.size(), 4) << "attribute " << attribute;
    const auto found = addresses.find(tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
    if (found != addresses.end()) data_ = found->second;
    EXPECT_NE(data_, nullptr) << "attribute " << attribute << " without an address";
    const auto alignment = tensor.One<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data_) % static_cast<uintptr_t>(alignment), 0)
        << "attribute " << attribute << " is not aligned";
  }

  const std::vector<int64_t>& dims() const { return dims_; }
  cudnnDataType_t type() const { return type_; }
  bool is_bad() const { return dims_.size() != 4 || data_ == nullptr; }

  double Get(int64_t a, int64_t b, int64_t c = 0, int64_t d = 0) const {
    const int64_t at = Place(a, b, c, d);
    switch (type_) {
      case CUDNN_DATA_HALF:
        return ToFloat(static_cast<const Float16*>(data_)[at]);
      case CUDNN_DATA_BFLOAT16:
        return ToFloat(static_cast<const Bfloat16*>(data_)[at]);
      default:
        return static_cast<const float*>(data_)[at];
    }
  }
  void Set(double value, int64_t a, int64_t b, int64_t c = 0, int64_t d = 0) const {
    const int64_t at = Place(a, b, c, d);
    const auto narrow = static_cast<float>(value);
    switch (type_) {
      case CUDNN_DATA_HALF:
        static_cast<Float16*>(data_)[at] = ToFloat16(narrow);
        return;
      case CUDNN_DATA_BFLOAT16:
        static_cast<Bfloat16*>(data_)[at] = ToBfloat16(narrow);
        return;
      default:
        static_cast<float*>(data_)[at] = narrow;
    }
  }

 private:
  int64_t Place(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides_[0] + b * strides_[1] + c * strides_[2] + d * strides_[3];
  }

  std::vector<int64_t> dims_, strides_;
  cudnnDataType_t type_ = CUDNN_DATA_FLOAT;
  void* data_ = nullptr;
};

// Operands by what the attributes of both operations mean.
class HostNormalization {
 public:
  HostNormalization(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses)
      : operation_(operation),
        addresses_(addresses),
        backward_(operation.type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR),
        mode_(operation.One<cudnnBackendNormMode_t>(
            backward_ ? CUDNN_ATTR_OPERATION_NORM_BWD_MODE : CUDNN_ATTR_OPERATION_NORM_FWD_MODE)),
        x_(Named(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC)),
        scale_(Named(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
                     CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC)),
        inverse_(Named(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
                       CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC)),
        result_(Named(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC)) {}

  void Run() {
    if (!IsSound()) return;
    backward_ ? Backward() : Forward();
  }

 private:
  bool is_batch() const { return mode_ == CUDNN_BATCH_NORM; }
  bool is_rms() const { return mode_ == CUDNN_RMS_NORM; }
  NormalizedTensor Named(int forward, int backward) const {
    return {operation_, backward_ ? backward : forward, addresses_};
  }
  NormalizedTensor MeanTensor() const {
    return Named(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC);
  }

  // Sizes, types, and that nothing is there which the mode has not.
  bool IsSound() const {
    if (x_.is_bad() || scale_.is_bad() || inverse_.is_bad() || result_.is_bad()) return false;
    using Dims = std::vector<int64_t>;
    const Dims& x = x_.dims();
    EXPECT_EQ(result_.dims(), x);
    EXPECT_EQ(result_.type(), x_.type());
    EXPECT_EQ(scale_.dims(), (Dims{1, x[1], 1, 1}));
    EXPECT_TRUE(scale_.type() == CUDNN_DATA_FLOAT || (!is_batch() && scale_.type() == x_.type()));
    EXPECT_EQ(inverse_.dims(), is_batch() ? (Dims{1, x[1], 1, 1}) : (Dims{x[0], 1, 1, 1}));
    EXPECT_EQ(inverse_.type(), CUDNN_DATA_FLOAT);
    const bool has_mean = !operation_
                               .All<char>(backward_ ? CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC
                                                    : CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC)
                               .empty();
    EXPECT_EQ(has_mean, !is_rms());
    return !::testing::Test::HasFailure();
  }

  // Calls `visit` with the place of each element of a group, or of those with one scale.
  template <typename Visit>
  void EachOfGroup(int64_t group, const Visit& visit) const {
    is_batch() ? EachOfChannel(group, visit) : EachOfRow(group, visit);
  }
  template <typename Visit>
  void EachOfChannel(int64_t channel, const Visit& visit) const {
    for (int64_t n = 0; n < x_.dims()[0]; ++n)
      for (int64_t h = 0; h < x_.dims()[2]; ++h)
        for (int64_t w = 0; w < x_.dims()[3]; ++w) visit(n, channel, h, w);
  }
  template <typename Visit>
  void EachOfRow(int64_t row, const Visit& visit) const {
    for (int64_t c = 0; c < x_.dims()[1]; ++c) visit(row, c, 0, 0);
  }
  int64_t groups() const { return x_.dims()[is_batch() ? 1 : 0]; }
  double count() const {
    const auto& x = x_.dims();
    return static_cast<double>(x[0] * x[1] * x[2] * x[3] / groups());
  }
  double StatisticOf(const NormalizedTensor& of, int64_t group) const {
    return is_batch() ? of.Get(0, group) : of.Get(group, 0);
  }
  void SetStatistic(const NormalizedTensor& of, int64_t group, double value) const {
    is_batch() ? of.Set(value, 0, group) : of.Set(value, group, 0);
  }

  void Forward() {
    EXPECT_EQ(operation_.One<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE),
              CUDNN_NORM_FWD_TRAINING);
    const FakeDescriptor& number = operation_.Part(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
    ASSERT_FALSE(number.All<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE).empty());
    const NormalizedTensor epsilon(operation_, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
                                   Aligned(number));
    for (int64_t g = 0; g < groups(); ++g) {
      double mean = 0;
      if (!is_rms()) {
        EachOfGroup(g, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
          mean += x_.Get(a, b, c, d) / count();
        });
        SetStatistic(MeanTensor(), g, mean);
      }
      double variance = 0;
      EachOfGroup(g, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        const double away = x_.Get(a, b, c, d) - mean;
        variance += away * away / count();
      });
      const double inverse = 1 / std::sqrt(variance + epsilon.Get(0, 0));
      SetStatistic(inverse_, g, inverse);
      EachOfGroup(g, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        double y = (x_.Get(a, b, c, d) - mean) * inverse * scale_.Get(0, b);
        if (!is_rms()) {
          y += NormalizedTensor(operation_, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, addresses_)
                   .Get(0, b);
        }
        result_.Set(y, a, b, c, d);
      });
    }
  }

  // Numbers on the host lie anywhere.
  std::map<int64_t, void*> Aligned(const FakeDescriptor& number) {
    const auto id = number.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    const auto found = addresses_.find(id);
    EXPECT_NE(found, addresses_.end()) << "no epsilon";
    if (found != addresses_.end()) copy_ = *static_cast<const float*>(found->second);
    return {{id, &copy_}};
  }

  void Backward() {
    const NormalizedTensor dy(operation_, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, addresses_);
    const NormalizedTensor dscale(operation_, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                                  addresses_);
    ASSERT_EQ(dy.dims(), x_.dims());
    ASSERT_EQ(dscale.dims(), scale_.dims());
    ASSERT_EQ(dscale.type(), scale_.type());
    std::vector<double> scales(static_cast<size_t>(x_.dims()[1]));
    std::vector<double> biases = scales;
    for (int64_t g = 0; g < groups(); ++g) {
      const double mean = is_rms() ? 0 : StatisticOf(MeanTensor(), g);
      const double inverse = StatisticOf(inverse_, g);
      const auto normal = [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        return (x_.Get(a, b, c, d) - mean) * inverse;
      };
      double slopes = 0, along = 0;
      EachOfGroup(g, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        const double slope = dy.Get(a, b, c, d);
        const double n = normal(a, b, c, d);
        slopes += slope * scale_.Get(0, b) / count();
        along += slope * scale_.Get(0, b) * n / count();
        scales[b] += slope * n;
        biases[b] += slope;
      });
      if (is_rms()) slopes = 0;
      EachOfGroup(g, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        const double own = dy.Get(a, b, c, d) * scale_.Get(0, b);
        result_.Set(inverse * (own - slopes - normal(a, b, c, d) * along), a, b, c, d);
      });
    }
    for (int64_t b = 0; b < x_.dims()[1]; ++b) {
      dscale.Set(scales[b], 0, b);
      if (is_rms()) continue;
      NormalizedTensor(operation_, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, addresses_)
          .Set(biases[b], 0, b);
    }
  }

  const FakeDescriptor& operation_;
  const std::map<int64_t, void*>& addresses_;
  const bool backward_;
  const cudnnBackendNormMode_t mode_;
  const NormalizedTensor x_, scale_, inverse_, result_;
  alignas(16) float copy_ = 0;
};

}  // namespace

std::map<int, cudnnBackendAttributeType_t> DemandedOfNormalization(
    cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) {
    return {{CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE},
            {CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE},
            {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
  }
  if (type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR) {
    return {{CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE},
            {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
            {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
  }
  return {};
}

void NormalizeOnHost(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses) {
  HostNormalization(operation, addresses).Run();
}

}  // namespace weft::cuda
