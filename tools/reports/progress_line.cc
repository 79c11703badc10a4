#include "tools/reports/progress_line.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

constexpr int kBarCells = 25;
constexpr absl::Duration kAnimationPeriod = absl::Milliseconds(100);
constexpr absl::Duration kPlainPeriod = absl::Seconds(2);

// "###############----------" for 60 %.
std::string Bar(double fraction) {
  const int filled = static_cast<int>(fraction * kBarCells);
  return absl::StrCat(std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(kBarCells - filled), '-'));
}

}  // namespace

ProgressLine::ProgressLine(Console& console, Clock& clock, Labels labels, int64_t steps)
    : console_(console),
      clock_(clock),
      labels_(std::move(labels)),
      steps_(std::max<int64_t>(steps, 1)),
      start_(clock.Now()),
      first_step_(start_),
      now_(start_),
      last_shown_(absl::InfinitePast()) {}

double ProgressLine::seconds() const { return absl::ToDoubleSeconds(now_ - start_); }

double ProgressLine::rate() const {
  const double elapsed = absl::ToDoubleSeconds(now_ - first_step_);
  return elapsed > 0 ? static_cast<double>(samples_) / elapsed : 0;
}

std::string ProgressLine::Text(int64_t step, double loss) const {
  const double fraction = static_cast<double>(step + 1) / static_cast<double>(steps_);
  std::string text = absl::StrFormat("%s %3.0f %%", labels_.verb, 100 * fraction);
  if (console_.animated) absl::StrAppend(&text, " |", Bar(fraction), "|");
  absl::StrAppend(&text, "  step ", step + 1, "/", steps_);
  if (labels_.loss) absl::StrAppendFormat(&text, "  loss %.4f", loss);
  if (rate() > 0) {
    absl::StrAppendFormat(&text, "  %.0f %s/s", rate(), labels_.unit);
    const double per_step = absl::ToDoubleSeconds(now_ - first_step_) /
                            static_cast<double>(std::max<int64_t>(done_ - 1, 1));
    absl::StrAppend(&text, "  ETA ",
                    DurationText(per_step * static_cast<double>(steps_ - step - 1)));
  }
  if (!note_.empty()) absl::StrAppend(&text, "  ", note_);
  return text;
}

void ProgressLine::Step(int64_t step, double loss, int64_t samples) {
  now_ = clock_.Now();
  if (done_++ == 0) {
    first_step_ = now_;
  } else {
    samples_ += samples;
  }
  const bool last = step + 1 == steps_;
  const absl::Duration period = console_.animated ? kAnimationPeriod : kPlainPeriod;
  if (!last && now_ - last_shown_ < period) return;
  last_shown_ = now_;
  std::string text = Text(step, loss);
  const size_t width = text.size();
  if (console_.animated) {
    if (width < shown_width_) text.append(shown_width_ - width, ' ');
    *console_.err << "\r" << text;
  } else {
    *console_.err << text << "\n";
  }
  console_.err->flush();
  shown_width_ = width;
}

void ProgressLine::Finish() {
  if (console_.animated && shown_width_ > 0) *console_.err << "\n" << std::flush;
  shown_width_ = 0;
}

}  // namespace weft
