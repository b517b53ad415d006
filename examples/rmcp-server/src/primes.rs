//! The work of a job: counts primes, says how far it is, and leaves the count in its folder.

use std::{
    env,
    error::Error,
    fs,
    io::{Write, stdout},
    path::Path,
};

use serde_json::json;

/// The first argument of this program when it is the work of a job.
pub(crate) const WORD: &str = "count-primes";

/// The file in the job's folder that has the count.
pub(crate) const RESULTS: &str = "primes.json";

/// Counts the primes below a number, in the folder that the job's environment names.
pub(crate) fn work(below: &str) -> Result<(), Box<dyn Error>> {
    let below: u64 = below.parse()?;
    let folder = env::var("UNHANG_JOB_DIR")?;
    let mut count = 0;
    let mut told = 0;
    for number in 2..below {
        count += u64::from(is_prime(number));
        let percent = number * 100 / below;
        if percent > told {
            told = percent;
            // The log of the job, in which the server finds how far it is.
            writeln!(stdout(), "progress: {percent}%")?;
        }
    }
    fs::write(Path::new(&folder).join(RESULTS), json!({ "below": below, "primes": count }).to_string())?;
    Ok(())
}

fn is_prime(number: u64) -> bool {
    (2..).take_while(|divisor| divisor * divisor <= number).all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use super::is_prime;

    #[test]
    fn a_number_with_two_divisors_is_prime() {
        assert_eq!(
            (2..30).filter(|number| is_prime(*number)).collect::<Vec<_>>(),
            [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
        );
    }
}
