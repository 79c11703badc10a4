// TensorBoardWriter: scalars as an event file that TensorBoard shows.
#ifndef WEFT_TRAINING_RECORDS_TENSORBOARD_WRITER_H_
#define WEFT_TRAINING_RECORDS_TENSORBOARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace weft {

// Writes FOLDER/events.out.tfevents.SECONDS.weft. Events reach the system within some two seconds
// of the next one added, so that a running job can be watched and a killed one leaves them. Borrows
// the clock. One thread.
class TensorBoardWriter {
 public:
  // Creates the folder. A file of the same name, from a run begun in the same second, is replaced.
  static absl::StatusOr<std::unique_ptr<TensorBoardWriter>> Create(FileSystem& files, Clock& clock,
                                                                   const std::string& folder);

  // A point of the curve `tag`, now. Keeps the first error until Close.
  void AddScalar(const std::string& tag, int64_t step, double value);
  absl::Status Close();

 private:
  TensorBoardWriter(std::unique_ptr<WritableFile> file, Clock& clock)
      : file_(std::move(file)), clock_(clock) {}

  const std::unique_ptr<WritableFile> file_;
  Clock& clock_;
  int64_t flushed_nanos_ = 0;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECORDS_TENSORBOARD_WRITER_H_
