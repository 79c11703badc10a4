// ProgressLine: shows the progress of a run on standard error.
#ifndef WEFT_TOOLS_REPORTS_PROGRESS_LINE_H_
#define WEFT_TOOLS_REPORTS_PROGRESS_LINE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "platform/clock.h"
#include "tools/console/console.h"

namespace weft {

// On a terminal one line that is written over, ten times a second at most; elsewhere a plain line
// every few seconds. Used by one thread at a time.
class ProgressLine {
 public:
  struct Labels {
    std::string verb;              // "train"
    std::string unit = "samples";  // what is counted per second
    bool loss = true;              // show it
  };
  // Borrows console and clock.
  ProgressLine(Console& console, Clock& clock, Labels labels, int64_t steps);

  // Step `step` (counted from 0) of `samples` samples is done.
  void Step(int64_t step, double loss, int64_t samples);
  // Shown at the end of the line from the next step on; "" = nothing.
  void set_note(std::string note) { note_ = std::move(note); }
  // Ends the line, so that others can write.
  void Finish();

  // Samples per second since the first step, the first one left out.
  double rate() const;
  double seconds() const;

 private:
  std::string Text(int64_t step, double loss) const;

  Console& console_;
  Clock& clock_;
  const Labels labels_;
  const int64_t steps_;
  const absl::Time start_;
  absl::Time first_step_;
  absl::Time now_;
  absl::Time last_shown_;
  std::string note_;
  int64_t samples_ = 0;  // after the first step
  int64_t done_ = 0;     // steps
  size_t shown_width_ = 0;
};

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PROGRESS_LINE_H_
