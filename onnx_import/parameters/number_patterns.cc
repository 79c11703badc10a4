#include "onnx_import/parameters/number_patterns.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "platform/mapped_pages.h"

namespace weft {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;
constexpr int64_t kMaxSeries = int64_t{1} << 20;
constexpr int64_t kTablePositions = 64;
constexpr int64_t kTableColumns = 256;
// Rows that may be special (padding) at the begin of a longer table.
constexpr int64_t kSkippedPositions = 8;
// Larger grids are not looked at.
constexpr int64_t kMaxGrid = int64_t{1} << 20;
constexpr int64_t kMinGridExtent = 3;

bool IsReadable(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const bool is_real = dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                       dtype == DType::kFloat16 || dtype == DType::kBfloat16;
  return is_real && tensor.is_on_host() && tensor.num_elements() > 0;
}

void Release(const Tensor& tensor) {
  ReleaseMappedPages({static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()});
}

// How far numbers of this type are from those that were meant.
double ToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return 2e-2;
  return dtype == DType::kFloat16 ? 4e-3 : 1e-3;
}

// The numbers of a tensor with one long axis of `min_size` or more; empty for others.
std::vector<double> SeriesOf(const Tensor& tensor, int64_t min_size) {
  if (!IsReadable(tensor) || LongAxes(tensor.shape()).size() != 1) return {};
  const int64_t count = tensor.num_elements();
  if (count < min_size || count > kMaxSeries) return {};
  const auto numbers = ToDoubles(tensor);
  return numbers.ok() ? *numbers : std::vector<double>();
}

// A tensor as [outer, positions, inner], to be read along the axis in the middle.
class TableView {
 public:
  TableView(const Tensor& tensor, size_t axis)
      : flat_(tensor.Reshaped(Shape{tensor.num_elements()})),
        tolerance_(ToleranceOf(tensor.dtype())) {
    const std::vector<int64_t> axes = LongAxes(tensor.shape());
    positions_ = axes[axis];
    for (size_t i = axis + 1; i < axes.size(); ++i) inner_ *= axes[i];
    columns_ = tensor.num_elements() / positions_;
  }

  bool IsSinusoid() const {
    if (positions_ < 5 || columns_ < 2) return false;
    const int64_t step = std::max<int64_t>(1, columns_ / kTableColumns);
    bool turns = false;
    for (int64_t column = 0; column < columns_; column += step) {
      const std::vector<double> numbers = Column(column);
      if (numbers.empty() || !IsWave(numbers, turns)) return false;
    }
    return turns;
  }

 private:
  std::vector<double> Column(int64_t column) const {
    const int64_t begin = positions_ >= 3 * kSkippedPositions ? kSkippedPositions : 0;
    const int64_t end = std::min(positions_, begin + kTablePositions);
    const int64_t first = column / inner_ * positions_ * inner_ + column % inner_;
    std::vector<double> numbers;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = first + i * inner_;
      const auto number = ToDoubles(flat_.Rows(at, at + 1));
      if (!number.ok()) return {};
      numbers.push_back(number->front());
    }
    return numbers;
  }

  // `turns`: set where it is no constant and no straight line.
  bool IsWave(const std::vector<double>& v, bool& turns) const {
    double products = 0, squares = 0, largest = 0;
    for (size_t i = 1; i + 1 < v.size(); ++i) {
      products += v[i] * (v[i - 1] + v[i + 1]);
      squares += v[i] * v[i];
    }
    for (const double number : v) largest = std::max(largest, std::abs(number));
    if (!std::isfinite(squares)) return false;
    if (largest < tolerance_) return true;  // sin(0 i)
    const double twice_cosine = squares > 0 ? products / squares : 0;
    if (std::abs(twice_cosine) > 2 + tolerance_) return false;
    for (size_t i = 1; i + 1 < v.size(); ++i) {
      const double rest = v[i + 1] + v[i - 1] - twice_cosine * v[i];
      if (std::abs(rest) > tolerance_ * (1 + largest)) return false;
    }
    turns = turns || (twice_cosine < 1.99 && largest > 0.5);
    return true;
  }

  const Tensor flat_;
  const double tolerance_;
  int64_t positions_ = 0;
  int64_t inner_ = 1;
  int64_t columns_ = 0;
};

// The axis along which the numbers of a grid rise or fall, if they depend on no other one.
std::optional<size_t> OnlyAxisOf(const std::vector<double>& grid,
                                 const std::vector<int64_t>& extents) {
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    int64_t stride = 1;
    for (size_t i = axis + 1; i < extents.size(); ++i) stride *= extents[i];
    const auto number = [&](int64_t place) { return grid[static_cast<size_t>(place * stride)]; };
    bool fits = true;
    for (int64_t i = 1; fits && i < extents[axis]; ++i) {
      const bool rises = number(1) > number(0);
      fits = rises ? number(i) > number(i - 1) : number(i) < number(i - 1);
    }
    for (size_t i = 0; fits && i < grid.size(); ++i) {
      fits = grid[i] == number(static_cast<int64_t>(i) / stride % extents[axis]);
    }
    if (fits) return axis;
  }
  return std::nullopt;
}

}  // namespace

bool EveryNumber(const Tensor& tensor, const std::function<bool(double)>& fits) {
  if (!IsReadable(tensor)) return false;
  const int64_t count = tensor.num_elements();
  const Tensor flat = tensor.Reshaped(Shape{count});
  for (int64_t begin = 0; begin < count; begin += kPieceElements) {
    const Tensor piece = flat.Rows(begin, std::min(count, begin + kPieceElements));
    const auto numbers = ToDoubles(piece);
    Release(piece);
    if (!numbers.ok() || !std::all_of(numbers->begin(), numbers->end(), fits)) return false;
  }
  return true;
}

std::optional<double> CommonNumber(const Tensor& tensor) {
  std::optional<double> common;
  const bool is_common = EveryNumber(tensor, [&common](double number) {
    if (!common.has_value()) common = number;
    return number == *common;
  });
  return is_common ? common : std::nullopt;
}

std::vector<int64_t> LongAxes(const Shape& shape) {
  std::vector<int64_t> axes;
  for (const int64_t dim : shape.dims()) {
    if (dim > 1) axes.push_back(dim);
  }
  return axes;
}

bool IsScoreMask(const Tensor& tensor) {
  constexpr double kHides = -1e4;
  constexpr double kHidesAlone = -50;
  bool hides = false, all_far = true, all_alike = true;
  double lowest = 0;
  const bool fits = EveryNumber(tensor, [&](double number) {
    if (number == 0) return true;
    all_far = all_far && number <= kHides;
    all_alike = all_alike && (!hides || number == lowest);
    lowest = number;
    hides = true;
    return number <= kHidesAlone && (all_far || all_alike);
  });
  return fits && hides;
}

bool IsBinary(const Tensor& tensor) {
  bool zero = false, one = false;
  const bool fits = EveryNumber(tensor, [&zero, &one](double number) {
    zero = zero || number == 0;
    one = one || number == 1;
    return number == 0 || number == 1;
  });
  return fits && zero && one;
}

bool AreRegionNumbers(const Tensor& tensor) {
  constexpr double kMaxRegion = 1023;
  double min_number = kMaxRegion, max_number = 0;
  const bool fits = EveryNumber(tensor, [&min_number, &max_number](double number) {
    min_number = std::min(min_number, number);
    max_number = std::max(max_number, number);
    return number >= 0 && number <= kMaxRegion && number == std::floor(number);
  });
  return fits && min_number < max_number;
}

bool IsGeometric(const Tensor& tensor) {
  const std::vector<double> v = SeriesOf(tensor, 4);
  if (v.empty() || !(v[0] > 0)) return false;
  const double ratio = v[1] / v[0];
  const double tolerance = ToleranceOf(tensor.dtype());
  if (!(ratio > 0) || std::abs(ratio - 1) <= 2 * tolerance) return false;
  for (size_t i = 1; i < v.size(); ++i) {
    if (!(std::abs(v[i] - ratio * v[i - 1]) <= tolerance * ratio * v[i - 1])) return false;
  }
  return true;
}

bool IsPositiveAndMonotonic(const Tensor& tensor) {
  const std::vector<double> v = SeriesOf(tensor, 8);
  if (v.empty() || !(v[0] > 0)) return false;
  const bool rises = v[1] > v[0];
  for (size_t i = 1; i < v.size(); ++i) {
    const bool goes_on = rises ? v[i] > v[i - 1] : v[i] < v[i - 1];
    if (!goes_on || !(v[i] > 0)) return false;
  }
  return true;
}

bool IsCountingUp(const Tensor& tensor) {
  const std::vector<double> v = SeriesOf(tensor, 4);
  if (v.empty()) return false;
  const double step = v[1] - v[0];
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] != std::floor(v[i]) || (i > 0 && v[i] - v[i - 1] != step)) return false;
  }
  return step != 0;
}

bool AreMostlyDistinct(const Tensor& tensor) {
  constexpr int64_t kSample = 256;
  if (!IsReadable(tensor)) return false;
  // From all of it: a table may begin with a row of zeros for padding.
  const int64_t count = std::min(tensor.num_elements(), kSample);
  // An even distance may be a multiple of the rows, and look at one column alone.
  const int64_t farthest = tensor.num_elements() / std::max<int64_t>(count, 1);
  const int64_t distance = farthest > 1 && farthest % 2 == 0 ? farthest - 1 : farthest;
  const Tensor flat = tensor.Reshaped(Shape{tensor.num_elements()});
  std::set<double> distinct;
  for (int64_t i = 0; i < count; ++i) {
    const auto number = ToDoubles(flat.Rows(i * distance, i * distance + 1));
    if (!number.ok()) return false;
    distinct.insert(number->front());
  }
  Release(tensor);
  return 2 * static_cast<int64_t>(distinct.size()) > count;
}

bool IsCoordinateGrid(const Tensor& tensor) {
  const std::vector<int64_t> axes = LongAxes(tensor.shape());
  const size_t count = axes.size();
  if (!IsReadable(tensor) || count < 3 || count > 4 || tensor.num_elements() > kMaxGrid) {
    return false;
  }
  const auto numbers = ToDoubles(tensor.Reshaped(Shape{tensor.num_elements()}));
  Release(tensor);
  if (!numbers.ok()) return false;
  const auto points = static_cast<int64_t>(count - 1);
  const bool is_last = axes.back() == points;
  if (!is_last && axes.front() != points) return false;
  const std::vector<int64_t> extents(axes.begin() + (is_last ? 0 : 1), axes.end() - is_last);
  if (*std::min_element(extents.begin(), extents.end()) < kMinGridExtent) return false;
  const int64_t places = tensor.num_elements() / points;
  std::set<size_t> taken;
  for (int64_t entry = 0; entry < points; ++entry) {
    std::vector<double> one(static_cast<size_t>(places));
    for (int64_t place = 0; place < places; ++place) {
      const int64_t at = is_last ? place * points + entry : entry * places + place;
      one[static_cast<size_t>(place)] = (*numbers)[static_cast<size_t>(at)];
    }
    const std::optional<size_t> axis = OnlyAxisOf(one, extents);
    if (!axis.has_value() || !taken.insert(*axis).second) return false;
  }
  return true;
}

bool IsSinusoidTable(const Tensor& tensor) {
  if (!IsReadable(tensor)) return false;
  const size_t axes = LongAxes(tensor.shape()).size();
  bool found = false;
  for (size_t axis = 0; axis < axes && axes > 1 && !found; ++axis) {
    found = TableView(tensor, axis).IsSinusoid();
  }
  Release(tensor);
  return found;
}

}  // namespace weft
