#include "ops/kernels/cuda/signal/fourier_plan.h"

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

using TableValues = std::vector<std::complex<double>>;

std::complex<double> UnitAt(double angle) { return {std::cos(angle), std::sin(angle)}; }

// exp(2 pi j i / n)
std::complex<double> RootOf(int64_t n, int64_t i) {
  return UnitAt(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n));
}

// Fours first: they take the fewest passes. Empty where n has a prime factor above 5.
std::vector<int64_t> SmallFactorsOf(int64_t n) {
  std::vector<int64_t> factors;
  for (const int64_t factor : {4, 2, 3, 5}) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  }
  if (n > 1) factors.clear();
  return factors;
}

// Appends the passes of plan.size to the plan, and their turns with sign 1.
void AddPasses(const std::vector<int64_t>& factors, FourierPlan& plan, TableValues& turns) {
  int64_t before = 1;
  for (const int64_t factor : factors) {
    const int64_t after = plan.size / before / factor;
    FourierPass& pass = plan.pass[plan.passes++];
    pass.factor = static_cast<int32_t>(factor);
    pass.before = static_cast<int32_t>(before);
    pass.after = static_cast<int32_t>(after);
    pass.turns = static_cast<int32_t>(turns.size());
    for (int64_t j = 1; j < factor; ++j) {
      for (int64_t i = 0; i < after; ++i) turns.push_back(RootOf(plan.size, j * before * i));
    }
    before *= factor;
  }
}

// The transform of a power of two, by halves (J. Cooley, J. Tukey, 1965).
TableValues TransformHalves(const TableValues& x) {
  const auto n = static_cast<int64_t>(x.size());
  if (n == 1) return x;
  TableValues even, odd;
  for (int64_t i = 0; i < n; i += 2) {
    even.push_back(x[i]);
    odd.push_back(x[i + 1]);
  }
  even = TransformHalves(even);
  odd = TransformHalves(odd);
  TableValues y(x.size());
  for (int64_t k = 0; k < n / 2; ++k) {
    const std::complex<double> turned = std::conj(RootOf(n, k)) * odd[k];
    y[k] = even[k] + turned;
    y[k + n / 2] = even[k] - turned;
  }
  return y;
}

// L. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
// 1970: since i k = (i^2 + k^2 - (k - i)^2) / 2, a transform is a convolution of chirps.
void MakeChirps(const FourierPlan& plan, TableValues& chirp, TableValues& filter) {
  const double sign = plan.is_inverse ? 1 : -1;
  filter.assign(static_cast<size_t>(plan.size), 0);
  for (int64_t k = 0; k < plan.length; ++k) {
    // The angle repeats; the square itself would lose digits.
    const int64_t square = k * k % (2 * plan.length);
    chirp.push_back(UnitAt(sign * std::numbers::pi * static_cast<double>(square) /
                           static_cast<double>(plan.length)));
    filter[k] = std::conj(chirp[k]);
    if (k > 0) filter[plan.size - k] = filter[k];
  }
  filter = TransformHalves(filter);
  for (std::complex<double>& value : filter) value /= static_cast<double>(plan.size);
}

size_t AddNumbers(const TableValues& values, bool in_double, DeviceTable& table) {
  if (in_double) return table.Add(values);
  std::vector<std::complex<float>> narrow;
  narrow.reserve(values.size());
  for (const std::complex<double>& value : values) narrow.emplace_back(value);
  return table.Add(narrow);
}

}  // namespace

absl::StatusOr<FourierTables> FourierTables::Make(Device& device, int64_t length, bool is_inverse,
                                                  bool in_double) {
  FourierTables tables;
  FourierPlan& plan = tables.plan_;
  plan.length = plan.size = length;
  plan.is_inverse = is_inverse;
  std::vector<int64_t> factors = SmallFactorsOf(length);
  plan.has_chirps = length > 1 && factors.empty();
  if (plan.has_chirps) {
    plan.size = 1;
    while (plan.size < 2 * length - 1) plan.size *= 2;
    factors = SmallFactorsOf(plan.size);
  }
  tables.sums_in_double_ = in_double || plan.has_chirps;
  TableValues turns, chirp, filter;
  AddPasses(factors, plan, turns);
  if (plan.has_chirps) MakeChirps(plan, chirp, filter);
  const size_t turns_at = AddNumbers(turns, tables.sums_in_double_, tables.table_);
  const size_t chirp_at = AddNumbers(chirp, true, tables.table_);
  const size_t filter_at = AddNumbers(filter, true, tables.table_);
  WEFT_RETURN_IF_ERROR(tables.table_.Upload(device));
  plan.turns = tables.table_.At(turns_at);
  if (plan.has_chirps) {
    plan.chirp = tables.table_.At(chirp_at);
    plan.filter = tables.table_.At(filter_at);
  }
  return tables;
}

}  // namespace weft::cuda
