"""Many runs: carried out, judged, repeated, summed up."""
