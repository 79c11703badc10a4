// NonZero, Compress and Unique, for every dtype.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/element_codes.h"
#include "ops/kernels/value/tensor_parts.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

Tensor IntsOf(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

// ---- Order of elements, whatever they are

// The place of each value among the distinct ones in ascending order; NaN comes last.
template <typename T>
std::vector<int64_t> RanksOf(const std::vector<T>& values) {
  const auto less = [](const T& a, const T& b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
    }
    return a < b;
  };
  std::vector<T> distinct = values;
  const auto precedes = [&less](const T& a, const T& b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) && std::isnan(b)) return false;
    }
    return less(a, b);
  };
  std::sort(distinct.begin(), distinct.end(), precedes);
  distinct.erase(std::unique(distinct.begin(), distinct.end(),
                             [&precedes](const T& a, const T& b) {
                               return !precedes(a, b) && !precedes(b, a);
                             }),
                 distinct.end());
  std::vector<int64_t> ranks;
  ranks.reserve(values.size());
  for (const T& value : values) {
    ranks.push_back(std::lower_bound(distinct.begin(), distinct.end(), value, precedes) -
                    distinct.begin());
  }
  return ranks;
}

bool IsNumbered(DType dtype) {
  return dtype == DType::kString || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

absl::StatusOr<std::vector<int64_t>> RanksOf(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (IsNumbered(dtype)) {
    const ElementCodes codes(dtype, {tensor});
    WEFT_ASSIGN_OR_RETURN(const Tensor coded, codes.Encode(tensor));
    return ToInt64s(coded);
  }
  if (dtype == DType::kUint64) {
    const auto values = tensor.data<uint64_t>();
    return RanksOf(std::vector<uint64_t>(values.begin(), values.end()));
  }
  if (IsInteger(dtype) || dtype == DType::kBool) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ToInt64s(tensor));
    return RanksOf(values);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(tensor));
  return RanksOf(values);
}

// ---- NonZero

absl::StatusOr<std::vector<bool>> NonZeros(const Tensor& tensor) {
  std::vector<bool> found(static_cast<size_t>(tensor.num_elements()));
  if (IsNumbered(tensor.dtype())) {
    // Zero and the empty string have the code 0.
    const ElementCodes codes(tensor.dtype(), {tensor});
    WEFT_ASSIGN_OR_RETURN(const Tensor coded, codes.Encode(tensor));
    size_t i = 0;
    for (const int64_t code : coded.data<int64_t>()) found[i++] = code != 0;
    return found;
  }
  size_t i = 0;
  const bool done = DispatchDType(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (const T& value : tensor.data<T>()) {
      if constexpr (std::is_arithmetic_v<T>) {
        found[i++] = value != T{0};
      } else {
        found[i++] = ToFloat(value) != 0;
      }
    }
  });
  if (done) return found;
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(tensor));
  for (const double value : values) found[i++] = value != 0;
  return found;
}

absl::Status RunNonZero(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const Shape& shape = input.shape();
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> found, NonZeros(input));
  const int64_t count = std::count(found.begin(), found.end(), true);
  WEFT_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DType::kInt64, Shape{shape.rank(), count}));
  const auto to = output.mutable_data<int64_t>();
  const auto strides = shape.Strides();
  int64_t column = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    auto rest = static_cast<int64_t>(i);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      to[static_cast<size_t>(axis * count + column)] = rest / strides[axis];
      rest %= strides[axis];
    }
    ++column;
  }
  context.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "NonZero", RunNonZero);

// ---- Along an axis, or of the flattened tensor

struct Along {
  Tensor tensor;
  int axis = 0;
};

absl::StatusOr<Along> AlongAxis(const ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  if (!context.attributes().Has("axis")) {
    return Along{input.Reshaped(Shape{input.num_elements()}), 0};
  }
  const int64_t given = context.attributes().Int("axis", 0);
  const absl::StatusOr<int> axis = NormalizeAxis(given, input.shape().rank());
  if (!axis.ok()) return context.InvalidArgument(absl::StrCat("there is no axis ", given));
  return Along{input, *axis};
}

absl::Status RunCompress(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Along along, AlongAxis(context));
  const Tensor& condition = context.InputTensor(1);
  const int64_t size = along.tensor.shape().dim(along.axis);
  if (condition.shape().rank() != 1) {
    return context.InvalidArgument("the condition must have one dimension");
  }
  std::vector<int64_t> indices;
  const auto wanted = condition.data<bool>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    if (static_cast<int64_t>(i) >= size) {
      return context.InvalidArgument(
          absl::StrCat("the condition is true at ", i, ", but there are ", size, " parts"));
    }
    indices.push_back(static_cast<int64_t>(i));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor output, TakeIndices(along.tensor, along.axis, indices));
  context.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Compress", RunCompress);

// ---- Unique

// Equal parts of a tensor along an axis.
struct Groups {
  std::vector<int64_t> first;     // by group: the first part that is in it
  std::vector<int64_t> count;     // by group
  std::vector<int64_t> group_of;  // by part
};

absl::StatusOr<Groups> GroupsOf(const Along& along) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks, RanksOf(along.tensor));
  const Shape& shape = along.tensor.shape();
  const int64_t parts = shape.dim(along.axis);
  const int64_t inner = shape.ProductOf(along.axis + 1, shape.rank());
  const int64_t outer = shape.ProductOf(0, along.axis);
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t* const x = ranks.data() + (o * parts + a) * inner;
      const int64_t* const y = ranks.data() + (o * parts + b) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(parts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Groups groups;
  groups.group_of.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      groups.first.push_back(order[i]);
      groups.count.push_back(0);
    }
    ++groups.count.back();
    groups.group_of[static_cast<size_t>(order[i])] = static_cast<int64_t>(groups.first.size()) - 1;
  }
  return groups;
}

// Groups in the order in which they first occur.
Groups InOrderOfOccurrence(const Groups& sorted) {
  std::vector<int64_t> order(sorted.first.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&sorted](int64_t a, int64_t b) {
    return sorted.first[static_cast<size_t>(a)] < sorted.first[static_cast<size_t>(b)];
  });
  Groups groups;
  std::vector<int64_t> place(order.size());
  for (const int64_t group : order) {
    const auto from = static_cast<size_t>(group);
    place[from] = static_cast<int64_t>(groups.first.size());
    groups.first.push_back(sorted.first[from]);
    groups.count.push_back(sorted.count[from]);
  }
  for (const int64_t group : sorted.group_of) {
    groups.group_of.push_back(place[static_cast<size_t>(group)]);
  }
  return groups;
}

absl::Status RunUnique(ValueContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Along along, AlongAxis(context));
  WEFT_ASSIGN_OR_RETURN(Groups groups, GroupsOf(along));
  if (context.attributes().Int("sorted", 1) == 0) groups = InOrderOfOccurrence(groups);
  WEFT_ASSIGN_OR_RETURN(Tensor values, TakeIndices(along.tensor, along.axis, groups.first));
  context.SetOutput(0, std::move(values));
  context.SetOutput(1, IntsOf(groups.first));
  context.SetOutput(2, IntsOf(groups.group_of));
  context.SetOutput(3, IntsOf(groups.count));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "Unique", RunUnique);

}  // namespace
}  // namespace weft::cpu
