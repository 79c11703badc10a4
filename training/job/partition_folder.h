// A folder with all that the workers of a job get, which people can read, edit and run again:
//
//   job.json                     which programs there are, and what tells whether a job fits them
//   plan.yaml                    the plan (placement/files/plan_file.h)
//   train-128/rank-0/            one partition (distributed/grpc/partition_files.h)
//   train-104/rank-0/ ...        the short last batch, other lengths: a folder for each program
//   evaluate-100/rank-0/ ...     the evaluation within the job, where there is one
#ifndef WEFT_TRAINING_JOB_PARTITION_FOLDER_H_
#define WEFT_TRAINING_JOB_PARTITION_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "training/job/stored_programs.h"

namespace weft {

// Writes the folder, job.json last: without it there is no folder to read. Files of an earlier dump
// that are in the way are replaced; what else lies there stays. How many files it has written.
absl::StatusOr<int> WritePartitionFolder(FileSystem& files, const std::string& folder,
                                         const StoredPrograms& stored);

// What WritePartitionFolder was given. Files may come from anywhere: errors name the file, and the
// place or field in it. NotFound for a missing file, InvalidArgument for what cannot be read, for a
// rank that is missing or too many, and for partitions that do not go with each other, with the
// plan or with their program's name.
absl::StatusOr<StoredPrograms> ReadPartitionFolder(FileSystem& files, const std::string& folder);
// StoredPrograms::flags alone, without the partitions. The errors of job.json.
absl::StatusOr<FlagRecord> ReadPartitionFlags(FileSystem& files, const std::string& folder);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_PARTITION_FOLDER_H_
