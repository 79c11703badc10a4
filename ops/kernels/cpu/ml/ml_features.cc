// Binarizer, Imputer, Normalizer, Scaler and FeatureVectorizer of ai.onnx.ml.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using FeatureTypes = TypeList<float, double, int64_t, int32_t>;

int64_t RowSize(const Shape& x) { return x.rank() == 0 ? 1 : x.dim(x.rank() - 1); }

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBinarizer(const PrepareContext& context) {
  const float threshold = context.attributes().Float("threshold", 0);
  const int64_t count = context.InputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FeatureTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([=, threads = context.threads()](const KernelContext& run) {
      const T* x = Input<T>(run, 0);
      T* y = Output<T>(run, 0);
      ParallelFor(threads, count, 0.5, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          y[i] = static_cast<double>(x[i]) > threshold ? T{1} : T{0};
        }
      });
      return absl::OkStatus();
    });
  });
}

// Elements that equal the replaced value (NaN: that are NaN) become their column's value.
template <typename T>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareImputerOf(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  std::vector<float> floats = attributes.Floats("imputed_value_floats");
  const bool reals = !floats.empty();
  // Whole numbers hold what is near to it of any float. The last one is what is replaced.
  floats.push_back(attributes.Float("replaced_value_float", 0));
  WEFT_ASSIGN_OR_RETURN(
      const Tensor converted,
      CastTensor(Tensor::Of<float>(Shape{static_cast<int64_t>(floats.size())}, floats),
                 context.InputDType(0)));
  const auto of_floats = converted.data<T>();
  std::vector<T> values(of_floats.begin(), of_floats.end() - 1);
  for (const int64_t value : attributes.Ints("imputed_value_int64s")) {
    if (!reals) values.push_back(static_cast<T>(value));
  }
  const int64_t columns = RowSize(context.InputShape(0));
  if (values.size() != 1 && static_cast<int64_t>(values.size()) != columns) {
    return context.InvalidArgument(absl::StrCat(values.size(), " imputed values for ", columns,
                                                " features, expected as many or one"));
  }
  const T replaced =
      reals ? of_floats.back() : static_cast<T>(attributes.Int("replaced_value_int64", 0));
  const int64_t count = context.InputShape(0).num_elements();
  return MakeKernel([=](const KernelContext& run) {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    for (int64_t i = 0; i < count; ++i) {
      const bool hit = x[i] == replaced || (x[i] != x[i] && replaced != replaced);
      y[i] = hit ? values[values.size() == 1 ? 0 : i % columns] : x[i];
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareImputer(const PrepareContext& context) {
  return PrepareByDType(context, context.InputDType(0), FeatureTypes(),
                        [&](auto zero) { return PrepareImputerOf<decltype(zero)>(context); });
}

// What a row is divided by. Signs stay as the standard's formulas have them for MAX.
template <typename T>
double DivisorOf(const std::string& norm, const T* row, int64_t size) {
  double divisor = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double magnitude = std::abs(static_cast<double>(row[i]));
    if (norm == "MAX") {
      divisor = std::max(divisor, magnitude);
    } else {
      divisor += norm == "L1" ? magnitude : magnitude * magnitude;
    }
  }
  if (norm == "L2") divisor = std::sqrt(divisor);
  return divisor == 0 ? 1 : divisor;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareNormalizer(const PrepareContext& context) {
  const std::string norm = context.attributes().String("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2") {
    return context.InvalidArgument(
        absl::StrCat("attribute norm is '", norm, "', expected MAX, L1 or L2"));
  }
  const int64_t size = RowSize(context.InputShape(0));
  const int64_t rows = size == 0 ? 0 : context.InputShape(0).num_elements() / size;
  return PrepareByDType(context, context.InputDType(0), FeatureTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([=](const KernelContext& run) {
      for (int64_t r = 0; r < rows; ++r) {
        const T* row = Input<T>(run, 0) + r * size;
        const double divisor = DivisorOf(norm, row, size);
        for (int64_t i = 0; i < size; ++i) {
          Output<float>(run, 0)[r * size + i] =
              static_cast<float>(static_cast<double>(row[i]) / divisor);
        }
      }
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScaler(const PrepareContext& context) {
  std::vector<float> offset = context.attributes().Floats("offset");
  std::vector<float> scale = context.attributes().Floats("scale");
  if (offset.empty()) offset = {0};
  if (scale.empty()) scale = {1};
  const int64_t size = RowSize(context.InputShape(0));
  for (const auto* list : {&offset, &scale}) {
    if (list->size() == 1 || static_cast<int64_t>(list->size()) == size) continue;
    return context.InvalidArgument(absl::StrCat("attribute ", list == &scale ? "scale" : "offset",
                                                " has ", list->size(), " elements for ", size,
                                                " features, expected as many or one"));
  }
  const int64_t count = context.InputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FeatureTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([=](const KernelContext& run) {
      const T* x = Input<T>(run, 0);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t column = i % size;
        const double shifted = static_cast<double>(x[i]) - offset[offset.size() == 1 ? 0 : column];
        Output<float>(run, 0)[i] =
            static_cast<float>(shifted * scale[scale.size() == 1 ? 0 : column]);
      }
      return absl::OkStatus();
    });
  });
}

// Columns of one input, which are cut or filled up with zeros to `taken`.
struct Part {
  DType dtype;
  int64_t columns;
  int64_t taken;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFeatureVectorizer(const PrepareContext& context) {
  const std::vector<int64_t> sizes = context.attributes().Ints("inputdimensions");
  std::vector<Part> parts;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const int64_t columns = RowSize(context.InputShape(i));
    parts.push_back({context.InputDType(i), columns, sizes.empty() ? columns : sizes[i]});
  }
  const int64_t rows = context.OutputShape(0).dim(0);
  return MakeKernel([=](const KernelContext& run) {
    float* y = Output<float>(run, 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (size_t p = 0; p < parts.size(); ++p) {
        const Part& part = parts[p];
        const int64_t copied = std::min(part.columns, part.taken);
        DispatchDType(part.dtype, [&](auto zero) {
          const auto* x = Input<decltype(zero)>(run, static_cast<int>(p)) + r * part.columns;
          for (int64_t i = 0; i < copied; ++i) y[i] = static_cast<float>(Load(x[i]));
        });
        std::fill(y + copied, y + part.taken, 0.0f);
        y += part.taken;
      }
    }
    return absl::OkStatus();
  });
}

constexpr char kDomain[] = "ai.onnx.ml";
WEFT_REGISTER_KERNEL(kDomain, "Binarizer", DeviceKind::kCpu, PrepareBinarizer);
WEFT_REGISTER_KERNEL(kDomain, "Imputer", DeviceKind::kCpu, PrepareImputer);
WEFT_REGISTER_KERNEL(kDomain, "Normalizer", DeviceKind::kCpu, PrepareNormalizer);
WEFT_REGISTER_KERNEL(kDomain, "Scaler", DeviceKind::kCpu, PrepareScaler);
WEFT_REGISTER_KERNEL(kDomain, "FeatureVectorizer", DeviceKind::kCpu, PrepareFeatureVectorizer);

}  // namespace
}  // namespace weft::cpu
