#include "tensor/timing/copy_line.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

double RelativeErrors(const std::vector<TimedCopy>& copies, const FittedLine& line) {
  double sum = 0;
  for (const TimedCopy& copy : copies) {
    const double on_line = line.seconds + line.seconds_per_byte * copy.bytes;
    sum += std::pow((on_line - copy.seconds) / copy.seconds, 2);
  }
  return sum;
}

TEST(CopyLineTest, FindsTheLineThatCopiesLieOn) {
  std::vector<TimedCopy> copies;
  for (double bytes = 4096; bytes < 1e8; bytes *= 4) copies.push_back({bytes, 7e-6 + bytes / 2e10});
  const FittedLine line = FitLine(copies);
  EXPECT_NEAR(line.seconds, 7e-6, 1e-10);
  EXPECT_NEAR(line.seconds_per_byte, 1 / 2e10, 1e-15);
}

// No line beside it has smaller relative errors.
TEST(CopyLineTest, RelativeErrorsAreLeast) {
  const std::vector<TimedCopy> copies = {{1e3, 3e-6}, {1e4, 9e-6}, {1e5, 2.1e-5}, {1e6, 3e-4}};
  const FittedLine line = FitLine(copies);
  const FittedLine through_origin = FitLineThroughOrigin(copies);
  EXPECT_EQ(through_origin.seconds, 0);
  for (const double a : {0.98, 1.0, 1.02}) {
    for (const double b : {0.98, 1.0, 1.02}) {
      if (a == 1 && b == 1) continue;
      EXPECT_LT(RelativeErrors(copies, line),
                RelativeErrors(copies, {a * line.seconds, b * line.seconds_per_byte}))
          << a << " " << b;
    }
    if (a == 1) continue;
    EXPECT_LT(RelativeErrors(copies, through_origin),
              RelativeErrors(copies, {0, a * through_origin.seconds_per_byte}))
        << a;
  }
}

// Weights of 1 and 1/4: (1 + 2/4) / (1 + 1/4).
TEST(CopyLineTest, OneSizeHasNoSlope) {
  const FittedLine line = FitLine({{64, 1}, {64, 2}});
  EXPECT_EQ(line.seconds_per_byte, 0);
  EXPECT_NEAR(line.seconds, 1.2, 1e-12);
  EXPECT_EQ(FitLine({{64, 3}}).seconds, 3);
}

}  // namespace
}  // namespace weft
