// SoakTally: what many schedules have come to, by kind of fault.
#ifndef WEFT_TESTS_SOAK_SOAK_TALLY_H_
#define WEFT_TESTS_SOAK_SOAK_TALLY_H_

#include <map>
#include <string>

#include "tests/soak/fault_schedule.h"
#include "tests/soak/soak_run.h"

namespace weft::testing {

// Counts schedules and their ends. A schedule counts for each kind of fault that it has once.
class SoakTally {
 public:
  // The schedule of a seed: kinds take turns as the first fault.
  static FaultSchedule ScheduleOf(int seed);

  void Add(const FaultSchedule& schedule, const SoakOutcome& outcome);
  int schedules() const { return schedules_; }
  // With complaints.
  int wrong() const { return wrong_; }
  // In how many schedules a kind of fault has come, and the job went on after a loss.
  int struck(const std::string& row) const;
  int went_on(const std::string& row) const;
  // The same, from copies (SoakOutcome::from_copies); of all kinds.
  int from_copies() const { return from_copies_; }
  // A line for each kind of fault, one for each mesh, and the sum.
  std::string Text() const;

 private:
  struct KindEnds {
    int schedules = 0;
    int struck = 0;
    int whole = 0;    // came to the end, and lost nobody
    int went_on = 0;  // came to the end, after a loss
    int copies = 0;   // some loss was made good from copies
    int joined = 0;   // a new worker was taken in
    int stopped = 0;  // because a worker left
    int ended = 0;    // by an error
    int wrong = 0;
  };
  static void Count(const SoakOutcome& outcome, bool has_struck, KindEnds& ends);

  std::map<std::string, KindEnds> kinds_;   // by name
  std::map<std::string, KindEnds> meshes_;  // by text
  int schedules_ = 0;
  int wrong_ = 0;
  int from_copies_ = 0;
};

// What is wrong with a schedule, for people, with the command that runs it alone.
std::string ComplaintText(const FaultSchedule& schedule, const SoakOutcome& outcome);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SOAK_SOAK_TALLY_H_
